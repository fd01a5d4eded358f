#include <gtest/gtest.h>

#include "tools/copper/nodes/everywhere.hpp"
#include "tools/copper/nodes/remote_shell.hpp"

namespace copper::cli {
namespace {

using Words = std::vector<std::string>;

Words extra_of(const Words& extra, const std::string& usual) {
    return with_remote_shell({.family = Family::open_mpi_4, .program = "mpirun", .extra = extra}, usual);
}

std::string around(const std::string& shell) {
    return own_program() + " __remote-shell " + shell;
}

TEST(RemoteShell, StandsAroundTheUsualShellOfOpenMpi) {
    EXPECT_EQ(extra_of({"-v"}, "no-such-shell : true -q"),
              (Words{"-v", "--mca", "plm_rsh_agent", around("true -q")}));
}

TEST(RemoteShell, StandsAroundTheShellThatTheArgumentsName) {
    EXPECT_EQ(extra_of({"--mca", "plm_rsh_agent", "/bin/true -q : ssh", "-v"}, "ssh : rsh"),
              (Words{"--mca", "plm_rsh_agent", around("/bin/true -q"), "-v"}));
}

TEST(RemoteShell, LeavesWhatItCannotPassOn) {
    EXPECT_EQ(extra_of({"-v"}, "no-such-shell"), Words{"-v"});
    const Words quoted = {"--mca", "plm_rsh_agent", "true 'a b'"};
    EXPECT_EQ(extra_of(quoted, "ssh"), quoted);
}

TEST(RemoteShell, OtherLaunchersHaveNone) {
    EXPECT_EQ(with_remote_shell({.family = Family::hydra, .program = "mpiexec", .extra = {"-v"}}),
              Words{"-v"});
}

// Before it has lasted for as long as a start may take, its code counts.
TEST(RemoteShell, ThatFailsAtOnceFails) {
    EXPECT_EQ(run_remote_shell({"sh", "-c", "exit 3"}), 3);
    EXPECT_EQ(run_remote_shell({"sh", "-c", "kill -9 $$"}), 255);
    EXPECT_EQ(run_remote_shell({"no-such-shell"}), 255);
}

}  // namespace
}  // namespace copper::cli
