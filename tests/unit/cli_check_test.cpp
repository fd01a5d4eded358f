#include <fcntl.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "tools/copper/programs/check_judge.hpp"
#include "tools/copper/programs/check_report.hpp"
#include "tools/copper/programs/check_trace.hpp"

namespace copper::cli {
namespace {

// As strace -xx writes it.
std::string hex(std::string_view text) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string bytes;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        bytes += std::string("\\x") + digits[byte >> 4U] + digits[byte & 15U];
    }
    return bytes;
}
std::string quoted(std::string_view text) {
    return "\"" + hex(text) + "\"";
}
std::string descriptor(const std::string& number, std::string_view place) {
    return number + "<" + hex(place) + ">";
}
const std::string here = descriptor("-100", "/home/u");

// ---- The trace.

TEST(ParseCall, ReadsWhatStraceWrites) {
    const auto call =
        parse_call(R"(openat(-100<\x2f\x68>, "\x61\x22\x0a", 0x80241, 0666) = 3<\x2f\x6c\x61>)");
    ASSERT_TRUE(call);
    EXPECT_EQ(call->path, "a\"\n");
    EXPECT_TRUE(call->in_working_directory);
    EXPECT_EQ(call->directory, "/h");
    EXPECT_EQ(call->flags, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
    EXPECT_EQ(call->place, "/la");
    EXPECT_EQ(call->absolute_path(), "/h/a\"\n");
}

TEST(ParseCall, ReadsTheOtherCalls) {
    auto call = parse_call("open(" + quoted("/a") + ", 0) = " + descriptor("3", "/b"));
    ASSERT_TRUE(call);
    EXPECT_EQ(call->place, "/b");
    EXPECT_EQ(call->flags, O_RDONLY);

    call = parse_call("openat2(" + descriptor("5", "/d") + ", " + quoted("x") +
                      ", {flags=0x80001, resolve=0x8}, 24) = " + descriptor("3", "/d/x") + "(deleted)");
    ASSERT_TRUE(call);
    EXPECT_EQ(call->absolute_path(), "/d/x");
    EXPECT_FALSE(call->in_working_directory);
    EXPECT_EQ(call->flags & O_ACCMODE, O_WRONLY);
    EXPECT_EQ(call->place, "/d/x");

    call = parse_call("execve(" + quoted("/bin/sh") + ", [" + quoted("sh") + ", " + quoted("[") + "], [" +
                      quoted("A=1") + ", " + quoted("B=]) = 0") + "]) = 0");
    ASSERT_TRUE(call);
    EXPECT_EQ(call->kind, Call::Kind::exec);
    EXPECT_EQ(call->path, "/bin/sh");

    call =
        parse_call("openat(" + here + ", " + quoted("/no") + ", 0) = -1 ENOENT (No such file or directory)");
    ASSERT_TRUE(call);
    EXPECT_TRUE(call->is_absent);
    EXPECT_EQ(call->place, "");
}

TEST(ParseCall, IgnoresOtherAndBrokenLines) {
    const std::string good = "openat(" + here + ", " + quoted("/a") + ", 0x80000) = " + descriptor("3", "/a");
    ASSERT_TRUE(parse_call(good));
    for (std::size_t size = 0; size < good.size(); ++size) {
        // Cut off anywhere, it has no result, or a place that was cut off.
        const auto call = parse_call(good.substr(0, size));
        EXPECT_TRUE(!call || call->place.empty()) << good.substr(0, size);
    }
    for (const char* line :
         {"", "(", ") = ", "+++ exited with 0 +++", "openat(", "openat) = 3", "chdir(\"\\x2f\") = 0",
          "openat(-100, \"\\x2\", 0) = 3", "openat(-100, \"/a\", 0) = 3", "openat(-100, 0x0, 0) = 3",
          "openat(-100, \"\\x2f\", 0) = ?", "openat(-100, \"\\x2f\", 0) = -1 EACCES (Permission denied)",
          "execve(\"\\x2f\", [], []) = -1 EACCES (Permission denied)"}) {
        EXPECT_FALSE(parse_call(line)) << line;
    }
}

TEST(ReadCalls, JoinsLinesOfProcessesThatRanAtTheSameTime) {
    std::istringstream trace("12    openat(" + here + ", " + quoted("/a") + ", 0x80000 <unfinished ...>\n" +
                             "1234567 openat(" + here + ", " + quoted("b") +
                             ", 0) = " + descriptor("3", "/b") + "\n" +
                             "12    <... openat resumed>) = " + descriptor("4", "/a2") + "\n" +
                             "13    <... openat resumed>) = " + descriptor("4", "/nothing before") + "\n" +
                             "14    openat(" + here + ", " + quoted("/killed") + ", 0 <unfinished ...>\n");
    const auto calls = read_calls(trace);
    ASSERT_EQ(calls.size(), 2U);
    EXPECT_EQ(calls.at("12").at(0).path, "/a");
    EXPECT_EQ(calls.at("12").at(0).place, "/a2");
    EXPECT_EQ(calls.at("1234567").at(0).absolute_path(), "/home/u/b");
}

TEST(ReadCalls, FindsTheDirectoryOfARelativeProgram) {
    std::istringstream trace("execve(" + quoted("./x") + ", [], []) = 0\n" +  //
                             "openat(" + descriptor("7", "/other") + ", " + quoted("y") +
                             ", 0) = -1 ENOENT (...)\n" + "openat(" + here + ", " +
                             quoted("/etc/ld.so.cache") + ", 0) = " + descriptor("3", "/etc/ld.so.cache") +
                             "\n" +  //
                             "execve(" + quoted("z") + ", [], []) = 0\n");
    const auto calls = read_calls(trace).at("");
    EXPECT_EQ(calls.at(0).absolute_path(), "/home/u/x");
    EXPECT_EQ(calls.at(1).absolute_path(), "/other/y");
    EXPECT_EQ(calls.at(3).absolute_path(), std::nullopt);
}

// ---- The judgement.

// The tree /t is mirrored at /m. Files in `files` exist, the others too, but are empty.
struct World {
    std::vector<Call> calls;
    std::map<std::string, std::string> files;
    std::map<std::string, std::string> links;

    void open(const std::string& path, const std::string& place, int flags = O_RDONLY) {
        calls.push_back({.path = path, .directory = "/cwd", .flags = flags, .place = place});
    }
    void open(const std::string& path) { open(path, path); }
    void exec(const std::string& path) { calls.push_back({.kind = Call::Kind::exec, .path = path}); }
    Judgement judged() const {
        return judge(calls, {.mirror = {.mount = "/m", .trees = {"/t"}, .mounts = {"/m", "/m.1"}},
                             .apart = {"/t/apart"},
                             .resolve = [this](const std::string& path) -> std::optional<std::string> {
                                 const auto link = links.find(path);
                                 return link == links.end() ? path : link->second;
                             },
                             .read =
                                 [this](const std::string& path, std::size_t) {
                                     const auto file = files.find(path);
                                     return file == files.end() ? std::string() : file->second;
                                 }});
    }
    std::vector<std::string> around() const {
        std::vector<std::string> paths;
        for (const auto& bypass : judged().around) {
            paths.push_back(bypass.path);
        }
        return paths;
    }
};

TEST(Judge, CountsWhatLiesBelowTheTrees) {
    World world;
    world.open("/m/t/a");
    world.open("/m.1/t/a");
    world.open("/t/a");
    world.open("/t/b");
    world.open("/t/b");
    world.open("/elsewhere/c");
    world.open("/m/elsewhere/c");
    world.open("/t/apart/d");
    world.open("/t/absent", "");
    world.calls.back().is_absent = true;
    world.open("/m/t/absent", "");
    world.calls.back().is_absent = true;
    const auto judgement = world.judged();
    EXPECT_EQ(judgement.opened, 2U);
    EXPECT_EQ(judgement.absent, 1U);
    ASSERT_EQ(judgement.around.size(), 2U);
    EXPECT_EQ(judgement.around.at(1).path, "/t/b");
    EXPECT_EQ(judgement.around.at(1).opens, 2U);
}

TEST(Judge, LeavesOutOutput) {
    World world;
    world.open("/t/log", "/t/log", O_WRONLY | O_CREAT);
    world.open("/t/log");
    world.open("/t/both", "/t/both", O_RDWR);
    world.open("/t/only a place", "/t/only a place", O_PATH);
    EXPECT_TRUE(world.judged().around.empty());
}

TEST(Judge, KnowsInterpreters) {
    World world;
    world.files = {{"/m/t/bin/tool", "#! /t/env/bin/python -I\nprint()\n"}};
    world.links = {{"/t/env/bin/python", "/t/env/bin/python3"}};
    world.exec("/m/t/bin/tool");
    EXPECT_EQ(world.around(), std::vector<std::string>{"/t/env/bin/python3"});
    EXPECT_EQ(world.judged().opened, 2U);
}

TEST(Judge, FindsNoEndOfInterpretersInACircle) {
    World world;
    world.files = {{"/t/a", "#!/t/a"}, {"/t/b", "#!"}};
    world.exec("/t/a");
    world.exec("/t/b");
    EXPECT_EQ(world.judged().around.size(), 2U);
}

// ---- The report.

CheckReport report_of(std::vector<Bypass> around, std::uint64_t opened) {
    return {.command = {"x"},
            .mount = "/m",
            .trees = {"/t"},
            .judgement = {.around = std::move(around), .opened = opened, .absent = 1}};
}

TEST(CheckReport, EndsWithAVerdict) {
    const auto last = [](const CheckReport& report) {
        const auto text = check_text(report, Examples::few);
        return text.substr(text.rfind('\n', text.size() - 2) + 1);
    };
    EXPECT_EQ(last(report_of({}, 0)), "Nothing below the trees was opened.\n");
    EXPECT_EQ(last(report_of({}, 7)),
              "All 7 files and directories below the trees were opened through the mirror.\n");
    EXPECT_EQ(last(report_of({{.path = "/t/a", .opens = 1}}, 1000)),
              "1 of 1000 files and directories below the trees were opened around the mirror (<1%).\n");
}

TEST(CheckReport, NamesSomePathsOrAll) {
    std::vector<Bypass> around;
    for (char c = 'a'; c <= 'l'; ++c) {
        around.push_back({.path = std::string("/t/") + c, .opens = 2});
    }
    const auto report = report_of(around, 20);
    const auto text = check_text(report, Examples::few);
    EXPECT_NE(text.find("    /t/i\n    /t/j\n    and 2 more (--all shows all)\n"), std::string::npos) << text;
    EXPECT_NE(check_text(report, Examples::all).find("    /t/l\n"), std::string::npos);
    const auto json = check_json(report);
    EXPECT_EQ(json["schema"], 2);
    EXPECT_EQ(json["around"], 12);
    EXPECT_EQ(json["files"][0], nlohmann::json({{"path", "/t/a"}, {"opens", 2}}));
}

}  // namespace
}  // namespace copper::cli
