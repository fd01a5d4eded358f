// Writes inputs for the fuzzers with the real encoders: fuzz_seeds DIRECTORY makes
// DIRECTORY/<fuzzer>/<input>.
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/checksum.hpp"
#include "daemon/control/control.hpp"
#include "daemon/control/instance.hpp"
#include "profile/profile.hpp"
#include "tests/fuzz/wire_input.hpp"
#include "tests/support/messages.hpp"
#include "tools/copper/nodes/launch_record.hpp"
#include "wire/wire.hpp"

namespace copper::fuzz {
namespace {

using namespace std::chrono_literals;

class Seeds {
  public:
    explicit Seeds(std::filesystem::path directory) : directory_(std::move(directory)) {}

    void add(const std::string& fuzzer, std::string_view bytes) {
        std::filesystem::create_directories(directory_ / fuzzer);
        std::ofstream file(directory_ / fuzzer / ("seed-" + std::to_string(++counts_[fuzzer])),
                           std::ios::binary);
        file << bytes;
        must(file.good(), "a seed can be written");
    }

  private:
    std::filesystem::path directory_;
    std::map<std::string, int> counts_;
};

std::string_view text_of(Bytes bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename Number>
std::string as_bytes(Number number) {
    return std::string(text_of(std::as_bytes(std::span(&number, 1))));
}

// ---- wire

std::string input_of(const Message& message) {
    const Frame frame = encode(message);
    const auto signed_table = frame.header.span().subspan(wire_checksum_bytes);
    std::vector<std::byte> table(signed_table.begin(), signed_table.end());
    if (frame.body.size != 0) {
        replace_each(table, checksum_of(frame.body.span()), body_checksum_mark);
    }
    return as_bytes(static_cast<std::uint16_t>(table.size())) + std::string(text_of(table)) +
           std::string(text_of(frame.body.span()));
}

void add_wire(Seeds& seeds) {
    for (const auto& message : test::messages()) {
        seeds.add("wire", input_of(message));
    }
}

void add_codec(Seeds& seeds) {
    for (const std::size_t size : {std::size_t{1000}, coded_block_bytes + 1, 3 * coded_block_bytes}) {
        const auto coded = test::coded_extent(size);
        seeds.add("codec", as_bytes(static_cast<std::uint32_t>(size)) + as_bytes(std::uint32_t{500}) +
                               as_bytes(std::uint32_t{70000}) + as_bytes(std::uint8_t{3}) +
                               std::string(text_of(coded.blob.span())));
    }
}

// ---- texts

void add_control(Seeds& seeds) {
    seeds.add("control", to_line(ControlRequest{.verb = verb::stats, .argument = "20"}));
    seeds.add("control",
              to_line(ControlRequest{.verb = verb::stop, .argument = "\xff\n\"", .patience = 0ms}));
    seeds.add("control", to_line(ControlReply{
                             .job = "17.server",
                             .nodes = 3,
                             .parts = {{.rank = 0, .body = {{"host", "cn0"}, {"reader", true}}},
                                       {.rank = 2, .body = {{"state", "serving"}, {"uptime_seconds", 1.5}}},
                                       {.rank = 7, .body = nullptr}},
                             .error = ""}));
    seeds.add("control", to_line(ControlReply{.job = "", .error = "unknown verb: x"}));
    seeds.add(
        "control",
        "[1,0]<stdout>:{\"copper\":\"ready\",\"ready\":1,\"nodes\":3,\"failed\":[{\"host\":\"cn1\","
        "\"rank\":1,"
        "\"reason\":\"full\"}],\"missing\":[\"cn2\"],\"done\":false} [cn1] warning\nmpirun: lost a node\n");
}

void add_options(Seeds& seeds) {
    seeds.add(
        "options",
        "mount = \"/tmp/u/copper\"\ntree = [\"/usr\", '/usr/lib']\ncores = \"0,2-3\"\ncache-bytes = \"2G\"\n"
        "shared-file-bytes = 1_000_000\ncompress = \"lz4\"\nreaders = 0x10\narity = 0b11\ndeadline = 2.5e0\n"
        "log-dir = '''/tmp/logs/'''\nlog-to-output = true\nlog-level = 3\nallow-other = false\n"
        "passthrough = \"auto\" # why\nno-rewrite-symlinks = \"on\"\njob = \"17\"\npush = \"never\"\n");
    seeds.add("options",
              "launcher = \"mpirun\"\nnodes-from = \"pbs\"\nlocal = 4\nlauncher-args = \"-x A\"\n");
    seeds.add("options", "deadline = inf\n");
    seeds.add("options", "deadline = 1979-05-27T07:32:00Z\n");
    seeds.add(
        "options",
        "[table]\nkey.a = { b = [[1], [2]] }\n[[array]]\n\"quoted \\u00e9\" = \"\"\"\nx\\\n  y\"\"\"\n");
    seeds.add("options",
              "\x1f"
              "COPPER_TREE=/usr:/:/nowhere\x1f"
              "COPPER_CONFIG=x\x1f"
              "COPPER_NONSENSE=1\x1f"
              "COPPER_LOG_LEVEL=debug\x1f"
              "HOME=/\x1f--mount=./a/../b/\x1f--deadline=0.01\x1f--push=auto");
    seeds.add(
        "options",
        "readers = 1\x1f--readers=1048576\x1f--local=yes\x1f--create-mount=1\x1f--ready-timeout=86400\x1f"
        "--run-everywhere=srun\x1f--run-everywhere=-N4\x1f--cache-bytes=16m\x1f--shared-file-bytes=0\x1f"
        "--job=a b");
    seeds.add("options", "\x1f--tree=/usr\x1f--tree=/proc\x1f--log-level=none\x1f--cores=none");
}

void add_records(Seeds& seeds) {
    seeds.add("records", to_text(InstanceRecord{.mount = "/tmp/u/copper",
                                                .pid = 4711,
                                                .pid_started = 123456,
                                                .user = 1000,
                                                .job = "17",
                                                .batch_job = "17.server",
                                                .rank = 2,
                                                .nodes = 4,
                                                .trees = {"/lus/sw", "/home"},
                                                .made_directories = {"/tmp/u"},
                                                .run_everywhere = {"srun", "-N4"},
                                                .log_dir = "/home/u/logs"}));
    cli::LaunchRecord launch{.mount = "/tmp/u/copper",
                             .job = "17",
                             .batch_job = "",
                             .launch = "",
                             .process = {.pid = 4711, .started = 123456},
                             .launcher = {},
                             .hosts = {"cn0", "cn1.site.edu"},
                             .left_out = {{.host = "cn2", .reason = "no route", .answers = false}},
                             .on_this_machine = 0};
    launch.launcher.family = cli::Family::open_mpi_4;
    launch.launcher.program = "/usr/bin/mpirun";
    launch.launcher.extra = {"--mca", "btl", "tcp,self"};
    seeds.add("records", cli::to_text(launch));
}

void add_profiles(Seeds& seeds) {
    Profile profile{.trees = {"/lus/sw"}, .nodes_asked = 16, .runs = 3};
    seeds.add("profile", encode(profile));
    std::uint32_t number = 0;
    for (const char* path :
         {"/lus/sw", "/lus/sw/numpy", "/lus/sw/numpy/__init__.py", "/lus/sw/numpy/core.so"}) {
        for (const auto kind :
             {ObjectKind::directory, ObjectKind::entry, ObjectKind::extent, ObjectKind::batch}) {
            profile.uses.push_back({.key = {.kind = kind, .path = path, .index = number},
                                    .first_used = 10ms * number,
                                    .nodes = number % 17,
                                    .runs_missed = number % 3});
            ++number;
        }
    }
    seeds.add("profile", encode(profile));
}

void add_lists(Seeds& seeds) {
    seeds.add("lists", "hcn0 slots=4\ncn0\n\n# spare\n\tcn1.site.edu # x\r\n10.0.0.1\n10.0.0.1\n");
    seeds.add("lists",
              "m1 1 0:2 / / rw - rootfs rootfs rw\n27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
              "22 27 0:21 / /proc rw - proc proc rw\n30 27 0:50 / /home/a\\040b\\134 rw - nfs4 s:/home rw\n"
              "31 27 0:51 / /tmp/u/copper ro,nosuid shared:2 master:1 - fuse.copper copper "
              "rw,user_id=1000,group_id=1\n"
              "32 31 0:52 / /tmp/u/copper rw - tmpfs x rw\n");
    seeds.add("lists",
              "m2 9 8:2 / /a rw - fuse.copper x rw,user_id=0\n3 2 8:3 / /a rw - tmpfs x rw\nbroken\n");
    seeds.add("lists", "w -x  'a b' \"c \\\" $d\" e\\ f ''\n\tg");
    seeds.add("lists", "w'open");
    seeds.add("lists",
              "t7     execve(\"\\x2f\\x74\", [], [\"\\x41\\x3d\\x2f\\x74\"]) = 0\n"
              "7     openat(-100<\\x2f\\x74>, \"\\x78\", 0x80000 <unfinished ...>\n"
              "8     open(\"\\x2f\\x74\\x2f\\x61\", 02) = -1 ENOENT (No such file or directory)\n"
              "7     <... openat resumed>) = 3<\\x2f\\x74\\x2f\\x61\\x2e\\x70\\x74\\x68>\n"
              "8     openat2(3<\\x2f\\x6d>, \"\\x78\", {flags=0x1}, 24) = 4<\\x2f\\x74\\x2f\\x78>(deleted)\n"
              "  7:\t search path=/t/l\t\t(RUNPATH from file /m/t/x)\n  7:\t  trying file=/t/l/a.so\n"
              "  7:\tcalling init: /t/l/a.so\n/t/src\nimport finder\nhome = /t/bin\n'/t/mapped'\n");
    seeds.add("lists", "t#!/t/interpreter\nexecve(\"\\x2f\\x74\\x2f\\x78\", [], []) = 0\n");
}

}  // namespace
}  // namespace copper::fuzz

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: fuzz_seeds DIRECTORY\n");
        return 2;
    }
    using namespace copper::fuzz;
    Seeds seeds(argv[1]);
    add_wire(seeds);
    add_codec(seeds);
    add_control(seeds);
    add_options(seeds);
    add_records(seeds);
    add_profiles(seeds);
    add_lists(seeds);
    return 0;
}
