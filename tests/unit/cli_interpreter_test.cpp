#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/processes.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tools/copper/programs/interpreter.hpp"

namespace copper::cli {
namespace {

using Words = std::vector<std::string>;

const Mirror soft = {.mount = "/m", .trees = {"/soft"}, .mounts = {}};

// A filesystem where /home/u is a link to /soft/u, and all Pythons are links to one.
std::optional<std::string> follow(const std::string& path) {
    return path.ends_with("/python3")         ? std::optional<std::string>("/soft/py/bin/python3")
           : path == "/usr/local/bin/tool"    ? "/soft/tool"
           : path.starts_with("/home/u/venv") ? std::optional("/soft/u/" + path.substr(8))
                                              : std::nullopt;
}

TEST(InterpreterOf, FollowsTheRulesOfTheKernel) {
    EXPECT_EQ(interpreter_of("#!/soft/py/bin/python3\nimport x\n"), Words{"/soft/py/bin/python3"});
    EXPECT_EQ(interpreter_of("#! \t/soft/py/bin/python3 \t-E -s\t \n"),
              (Words{"/soft/py/bin/python3", "-E -s"}));
    EXPECT_EQ(interpreter_of("#!/bin/sh"), Words{"/bin/sh"});
    for (const char* other : {"", "#", "#!", "#!\n", "#! \n/bin/sh", "#!sh\n",
                              "\x7f"
                              "ELF",
                              " #!/bin/sh\n"}) {
        EXPECT_EQ(interpreter_of(other), Words{}) << other;
    }
}

TEST(InterpreterOf, KnowsTheLongFormOfPip) {
    const auto of = [](const std::string& line) {
        return interpreter_of("#!/bin/sh\n" + line + "\n' '''\nimport x\n");
    };
    EXPECT_EQ(of(R"('''exec' /soft/py/bin/python3 "$0" "$@")"), Words{"/soft/py/bin/python3"});
    EXPECT_EQ(of(R"('''exec' "/soft/a b/python3" -E "$0" "$@")"), (Words{"/soft/a b/python3", "-E"}));
    EXPECT_EQ(of(R"('''exec' '/soft/a b/python3' "$0" "$@")"), Words{"/soft/a b/python3"});
    for (const char* other : {R"('''exec' "$0" "$@")", "'''exec' /soft/python3",
                              R"(exec /soft/python3 "$0" "$@")", R"('''exec' "/soft/python3 $0 $@)"}) {
        EXPECT_EQ(of(other), Words{"/bin/sh"}) << other;
    }
}

TEST(ProgramThroughMirror, KeepsTheNameOfAPython) {
    EXPECT_EQ(program_through_mirror(soft, "/soft/venv/bin/python3", follow), "/m/soft/venv/bin/python3");
    EXPECT_EQ(program_through_mirror(soft, "/home/u/venv/bin/python3", follow), "/m/soft/u/venv/bin/python3");
    EXPECT_EQ(program_through_mirror(soft, "/usr/local/bin/tool", follow), "/m/soft/tool");
    for (const char* other :
         {"/other/venv/bin/python3", "/usr/bin/tool", "python3", "", "./python3", "/m/soft/tool"}) {
        EXPECT_EQ(program_through_mirror(soft, other, follow), std::nullopt) << other;
    }
}

class Files : public testing::Test {
  protected:
    std::string write(const std::string& name, const std::string& text, bool runs = false) const {
        const auto path = std::filesystem::path(directory_.path()) / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text;
        if (runs) {
            std::filesystem::permissions(path, std::filesystem::perms::owner_all);
        }
        return path;
    }

    // All files of the test lie in a tree, and its mirror is the directory "mirror".
    Mirror mirror_of_all() const {
        return {
            .mount = std::string(directory_.path()) + "/mirror", .trees = {directory_.path()}, .mounts = {}};
    }

    std::string mirrored(const std::string& path) const { return mirror_of_all().mount + path; }

    test::TemporaryDirectory directory_;
};

TEST_F(Files, ProgramsAreFoundAsExecvpFindsThem) {
    const auto plain = write("a/tool", ""), program = write("b/tool", "", true);
    std::filesystem::create_directories(std::string(directory_.path()) + "/c/tool");
    const auto root = std::string(directory_.path());
    EXPECT_EQ(find_program("tool", root + "/c:" + root + "/a:" + root + "/b"), program);
    EXPECT_EQ(find_program(program, ""), program);
    EXPECT_EQ(find_program(plain, ""), std::nullopt);
    EXPECT_EQ(find_program("tool", root), std::nullopt);
}

TEST_F(Files, ScriptsGetTheMirroredInterpreter) {
    const auto script = write("tool", "#!/soft/py/bin/python3 -E\n");
    EXPECT_EQ(with_mirrored_interpreter(soft, script, {"tool", "a b", "-c"}, follow),
              (Words{"/m/soft/py/bin/python3", "-E", script, "a b", "-c"}));
    for (const char* text : {"#!/bin/sh\n",
                             "\x7f"
                             "ELF",
                             ""}) {
        const auto other = write("other", text);
        EXPECT_EQ(with_mirrored_interpreter(soft, other, {"other", "x"}, follow), (Words{"other", "x"}));
    }
    EXPECT_EQ(with_mirrored_interpreter(soft, "/absent", {"absent"}, follow), Words{"absent"});
}

TEST_F(Files, StandardLibraryOfAVirtualEnvironment) {
    const auto python = write("venv/bin/python3", "");
    const auto library = [&] { return mirrored_standard_library(mirror_of_all(), python, follow); };
    EXPECT_EQ(library(), std::nullopt) << "no virtual environment";
    const auto home = std::string(directory_.path()) + "/py/bin";
    write("venv/pyvenv.cfg", "home = " + home + "\nversion = 3.11.2\n");
    EXPECT_EQ(library(), std::nullopt) << "the mirror has none";
    const auto place = mirrored(std::string(directory_.path()) + "/py/lib/python3.11");
    write(std::filesystem::relative(place + "/os.py", directory_.path()), "");
    EXPECT_EQ(library(), place + ":" + place + "/lib-dynload");
    write("venv/pyvenv.cfg", "version_info = 3.11.2.final.0\nhome=" + home + " \n");  // virtualenv
    EXPECT_EQ(library(), place + ":" + place + "/lib-dynload");
    for (const char* text : {"", "home\n", "home = /elsewhere/bin\nversion = 3.11.2\n", "version = 3.11\n"}) {
        write("venv/pyvenv.cfg", text);
        EXPECT_EQ(library(), std::nullopt) << text;
    }
}

}  // namespace
}  // namespace copper::cli
