// Writes inputs for the fuzzers with the real encoders: fuzz_seeds DIRECTORY makes
// DIRECTORY/<fuzzer>/<input>.
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/checksum.hpp"
#include "cache/codec.hpp"
#include "daemon/control/control.hpp"
#include "daemon/control/instance.hpp"
#include "profile/profile.hpp"
#include "tests/fuzz/wire_input.hpp"
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

Attributes attributes(std::uint32_t mode) {
    return {.inode = 7,
            .size = 1234,
            .blocks = 8,
            .device = 0,
            .mode = mode,
            .links = 1,
            .user = 1000,
            .group = 100,
            .block_bytes = 4096,
            .accessed = {1, 2},
            .modified = {-3, 999999999},
            .changed = {1700000000, 5}};
}

std::vector<std::byte> pattern(std::size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i) {
        bytes[i] = static_cast<std::byte>(i / 50 * 7 + i % 3);
    }
    return bytes;
}

Extent coded_extent(std::size_t size) {
    return {.attributes = attributes(0100644),
            .blob = lz4_coded(pattern(size)).value(),
            .coding = Coding::lz4,
            .plain_bytes = size};
}

Publication publication_of(ObjectKey key, ObjectPtr object) {
    return {.key = std::move(key),
            .root = Rank{3},
            .serial = 17,
            .sequence = 18,
            .lane = Lane::eager,
            .object = std::move(object)};
}

std::vector<Message> messages() {
    const auto listing = [](Listing::Detail detail) {
        return make_object(Listing({{.name = "__init__.py", .target = "", .attributes = attributes(0100644)},
                                    {.name = "lib.so",
                                     .target = "/lus/sw/lib.so.1",
                                     .attributes = attributes(0120777),
                                     .leads_into_trees = true},
                                    {.name = "caf\xe9", .target = "", .attributes = attributes(040755)}},
                                   detail));
    };
    Directory directory;
    directory.version = 5;
    directory.names = *listing(Listing::Detail::names_only)->listing();
    directory.entries = directory.names.size();
    directory.first_names.emplace_back(directory.names.at(0).name);
    directory.operation_time = 1500us;
    directory.is_serial = true;
    Directory huge;
    huge.version = 7;
    huge.entries = 3000;
    huge.first_names = {"a", std::string(255, 'b')};
    const auto extent =
        make_object(Extent{.attributes = attributes(0100644), .blob = copy_to_blob(pattern(100))}, 1000ms);
    Publication suspicious = publication_of({ObjectKind::directory, "/"}, make_object(Directory()));
    suspicious.spread = Publication::Spread::asked;
    suspicious.lane = Lane::bulk;
    suspicious.tree = 2;
    suspicious.news = {{Rank{1}, 0, NodeState::suspect}, {Rank{2}, 3, NodeState::serving}};
    return {
        Interest{.key = {ObjectKind::directory, "/lus/sw"}},
        Interest{.key = {ObjectKind::extent, "/lus/sw/a.so", 3, 0x1234567890},
                 .seen = {5, 6},
                 .attempt = 1,
                 .hops = 2,
                 .origin = Rank{9},
                 .wanted = Interest::Wanted::by_several,
                 .findings = {{Rank{1}, EIO}, {Rank{2}, Finding::empty}},
                 .spent = 1500ms,
                 .is_urging = true,
                 .news = {{Rank{1}, 7, NodeState::resigned}, {Rank{2}, 0, NodeState::dead}}},
        Decline{.key = {ObjectKind::extent, "/lus/sw/a.so", 3, 4}},
        Decline{.key = {ObjectKind::xattrs, "/lus/sw"}},
        Working{
            .key = {ObjectKind::directory, "/lus/sw"}, .spent = 1500ms, .still = 10ms, .place_in_queue = 7},
        publication_of({ObjectKind::directory, "/lus/sw"}, make_object(directory)),
        publication_of({ObjectKind::names, "/lus/huge", 2, 8}, make_object(directory, 1000ms)),
        publication_of({ObjectKind::names, "/lus/huge", 2, 7}, listing(Listing::Detail::names_only)),
        publication_of({ObjectKind::batch, "/lus/huge", 2, 7}, listing(Listing::Detail::attributes)),
        publication_of({ObjectKind::directory, "/lus/huge"}, make_object(huge)),
        publication_of({ObjectKind::entry, "/lus/absent"},
                       make_object(Listing({}, Listing::Detail::attributes))),
        publication_of({ObjectKind::extent, "/lus/sw/a.so", 0, 1}, extent),
        publication_of({ObjectKind::extent, "/lus/sw/empty"},
                       make_object(Extent{.attributes = {}, .blob = {}})),
        publication_of({ObjectKind::extent, "/lus/sw/b.so", 1}, make_object(coded_extent(1000))),
        publication_of({ObjectKind::extent, "/lus/sw/c.so"},
                       make_object(coded_extent(2 * coded_block_bytes + 5))),
        publication_of(
            {ObjectKind::extent, "/lus/sw/zeros", 0, 1},
            make_object(Extent{
                .attributes = attributes(0100644), .blob = {}, .coding = Coding::zeros, .plain_bytes = 100})),
        publication_of(
            {ObjectKind::data_map, "/lus/sw/a.so", 0, 1},
            make_object(DataMap{.attributes = attributes(0100644), .segments = {{0, 10}, {20, 99}}})),
        publication_of(
            {ObjectKind::space, "/lus/sw"},
            make_object(FilesystemSpace{.block_bytes = 1, .blocks = 3, .name_bytes_max = 255}, 2s)),
        publication_of({ObjectKind::xattrs, "/lus/sw"},
                       make_object(Xattrs{{"user.a", "1"}, {"security.capability", std::string(20, '\0')}})),
        publication_of({ObjectKind::xattr_batch, "/lus/sw", 3, 17},
                       make_object(XattrBatch{.entries = {{"a.so", Xattrs{{"user.a", "1"}, {"user.b", ""}}},
                                                          {"b.so", std::nullopt},
                                                          {"c.so", Xattrs{}}}})),
        publication_of({ObjectKind::xattr_batch, "/lus/huge", 2, 7}, make_object(XattrBatch())),
        publication_of({ObjectKind::directory, "/lus/secret"}, make_error(EACCES)),
        suspicious,
        Call{.id = 8, .origin = Rank{1}, .verb = "stats", .argument = "20", .patience = 5s},
        Call{.id = 9,
             .origin = Rank{0},
             .verb = "ready",
             .argument = "",
             .silence = Call::Silence::is_expected},
        Answer{.id = 8, .origin = Rank{1}, .parts = {}},
        Answer{.id = 8, .origin = Rank{1}, .parts = {{Rank{0}, "{\"host\":\"a\"}"}, {Rank{2}, ""}}},
        Ping{},
        Pong{.news = {{Rank{4}, 1, NodeState::serving}, {Rank{5}, incarnation_max, NodeState::suspect}}}};
}

void add_wire(Seeds& seeds) {
    for (const auto& message : messages()) {
        seeds.add("wire", input_of(message));
    }
}

void add_codec(Seeds& seeds) {
    for (const std::size_t size : {std::size_t{1000}, coded_block_bytes + 1, 3 * coded_block_bytes}) {
        const auto coded = coded_extent(size);
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
