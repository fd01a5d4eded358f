#include <gtest/gtest.h>

#include <map>

#include "tools/copper/environment.hpp"

namespace copper::cli {
namespace {

const Mirror mirror = {.mount = "/tmp/u/copper", .trees = {"/soft", "/usr"}, .mounts = {"/tmp/u/other"}};

// A filesystem where /bin is a link to /usr/bin.
std::optional<std::string> resolve(const std::string& path) {
    return path == "/bin" ? std::optional<std::string>("/usr/bin") : std::nullopt;
}

TEST(ThroughMirror, TakesWhatLiesInATree) {
    EXPECT_EQ(through_mirror(mirror, "/soft/py/bin", resolve), "/tmp/u/copper/soft/py/bin");
    EXPECT_EQ(through_mirror(mirror, "/soft//py/", resolve), "/tmp/u/copper/soft/py");
    EXPECT_EQ(through_mirror(mirror, "/soft", resolve), "/tmp/u/copper/soft");
    EXPECT_EQ(through_mirror(mirror, "/bin", resolve), "/tmp/u/copper/usr/bin");
    for (const char* other : {"", ".", "bin", "/software", "/home/u", "/tmp/u/copper/soft/py",
                              "/tmp/u/copper", "/tmp/u/other/soft"}) {
        EXPECT_EQ(through_mirror(mirror, other, resolve), std::nullopt) << other;
    }
}

TEST(ThroughMirror, LeavesMountsAloneWhereEverythingIsMirrored) {
    const Mirror all = {.mount = "/m.0", .trees = {"/"}, .mounts = {"/m.0", "/m.1"}};
    EXPECT_EQ(through_mirror(all, "/usr/bin", resolve), "/m.0/usr/bin");
    EXPECT_EQ(through_mirror(all, "/", resolve), "/m.0");
    EXPECT_EQ(through_mirror(all, "/m.0/usr", resolve), std::nullopt);
    EXPECT_EQ(through_mirror(all, "/m.1/usr", resolve), std::nullopt);
}

TEST(ListThroughMirror, KeepsTheOtherParts) {
    EXPECT_EQ(list_through_mirror(mirror, ":/soft/a::/home/b:rel:/usr/lib:", resolve),
              ":/tmp/u/copper/soft/a::/home/b:rel:/tmp/u/copper/usr/lib:");
    const auto once = list_through_mirror(mirror, "/soft/a:/bin", resolve);
    EXPECT_EQ(list_through_mirror(mirror, once, resolve), once);
}

TEST(OutOfMirror, TakesTheMountAway) {
    EXPECT_EQ(out_of_mirror("/m", "/m//soft/x"), "/soft/x");
    EXPECT_EQ(out_of_mirror("/m", "/m"), "/");
    EXPECT_EQ(out_of_mirror("/m", "/mm/soft"), std::nullopt);
}

std::map<std::string, std::string> environment_of(const std::map<std::string, std::string>& before,
                                                  bool pycache) {
    const auto read = [&](const std::string& name) -> std::optional<std::string> {
        const auto found = before.find(name);
        return found == before.end() ? std::nullopt : std::optional(found->second);
    };
    const EnvironmentRequest request{
        .mirror = mirror, .scratch = "/s", .python_bytecode_in_scratch = pycache};
    const auto changed = mirrored_environment(request, read, resolve);
    return {changed.begin(), changed.end()};
}

TEST(MirroredEnvironment, RewritesWhatIsSetAndFillsWhatIsNot) {
    const auto changed = environment_of(
        {{"PATH", "/soft/bin:/home/u/bin"}, {"PYTHONPATH", "/home/u"}, {"NUMBA_CACHE_DIR", "/mine"}}, false);
    EXPECT_EQ(changed.at("PATH"), "/tmp/u/copper/soft/bin:/home/u/bin");
    EXPECT_FALSE(changed.contains("PYTHONPATH"));
    EXPECT_FALSE(changed.contains("NUMBA_CACHE_DIR"));
    EXPECT_EQ(changed.at("MPLCONFIGDIR"), "/s/matplotlib");
    EXPECT_EQ(changed.at("PYTHONDONTWRITEBYTECODE"), "1");
    // It would make Python ignore the compiled files that the tree has.
    EXPECT_FALSE(changed.contains("PYTHONPYCACHEPREFIX"));
    EXPECT_EQ(environment_of({}, true).at("PYTHONPYCACHEPREFIX"), "/s/pycache");
}

// What conda's activation sets. Programs may write to what it names beside these.
TEST(MirroredEnvironment, RewritesWhatActivationSets) {
    const std::map<std::string, std::string> before = {
        {"PATH", "/soft/env/bin:/bin"},        {"LD_LIBRARY_PATH", "/soft/env/lib"},
        {"CONDA_PREFIX", "/soft/env"},         {"VIRTUAL_ENV", "/soft/venv"},
        {"PYTHONHOME", "/soft/env"},           {"PERL5LIB", "/soft/env/lib/perl5:/home/u/perl5"},
        {"GDAL_DATA", "/soft/env/share/gdal"}, {"GDAL_DRIVER_PATH", "/soft/env/lib/gdalplugins"},
        {"PROJ_DATA", "/soft/env/share/proj"}, {"SSL_CERT_FILE", "/soft/env/ssl/cacert.pem"},
    };
    const auto changed = environment_of(before, false);
    for (const auto& [name, value] : before) {
        EXPECT_EQ(changed.at(name), list_through_mirror(mirror, value, resolve));
        EXPECT_TRUE(changed.at(name).starts_with("/tmp/u/copper/soft/")) << name;
    }
    EXPECT_FALSE(environment_of({{"XDG_DATA_DIRS", "/soft/env/share"}}, false).contains("XDG_DATA_DIRS"));
}

TEST(MirroredEnvironment, HasNothingToSayTheSecondTime) {
    auto before = environment_of({{"PATH", "/soft/bin"}}, false);
    EXPECT_TRUE(environment_of(before, false).empty());
}

TEST(ShellLines, AreSafeForAnyValue) {
    const Changes changes = {{"PATH", R"(/a b:/it's!\)"}, {"GONE", std::nullopt}};
    EXPECT_EQ(shell_lines(Shell::posix, changes), "export PATH='/a b:/it'\\''s!\\'\nunset GONE\n");
    EXPECT_EQ(shell_lines(Shell::fish, changes), "set -gx PATH '/a b:/it\\'s!\\\\';\nset -e GONE;\n");
    EXPECT_EQ(shell_lines(Shell::slurm, changes), "export PATH=/a b:/it's!\\\nunset GONE\n");
    EXPECT_EQ(shell_lines(Shell::csh, changes), "setenv PATH '/a b:/it'\\''s\\!\\';\nunsetenv GONE;\n");
}

TEST(LeadsInto, TellsWhetherAnyVariableDoes) {
    const auto leads = [](const std::string& path, const Variables& changed) {
        return leads_into(mirror, changed, [&](const std::string& name) {
            return name == "PATH" ? std::optional(path) : std::nullopt;
        });
    };
    EXPECT_FALSE(leads("/bin:/home/u", {{"MPLCONFIGDIR", "/tmp/u/copper/x"}}));
    EXPECT_TRUE(leads("/bin:/tmp/u/copper/soft", {}));
    EXPECT_TRUE(leads("/bin", {{"PYTHONPATH", "/home/u:/tmp/u/copper/soft"}}));
}

TEST(UnmirroredEnvironment, UndoesWhatMirroredEnvironmentDid) {
    const std::map<std::string, std::string> before = {
        {"PATH", "/soft/bin::/home/u/bin"}, {"PYTHONPATH", "/home/u"}, {"NUMBA_CACHE_DIR", "/mine"}};
    for (const std::string mount : {"/tmp/u/copper", "/tmp/u/copper.12"}) {
        for (const bool pycache : {false, true}) {
            auto environment = before;
            const auto read = [&](const std::string& name) -> std::optional<std::string> {
                const auto found = environment.find(name);
                return found == environment.end() ? std::nullopt : std::optional(found->second);
            };
            const EnvironmentRequest request{.mirror = {.mount = mount, .trees = {"/soft"}, .mounts = {}},
                                             .scratch = "/tmp/copper-7/scratch",
                                             .python_bytecode_in_scratch = pycache,
                                             .python_modules = "/tmp/copper-7/hash/python"};
            for (const auto& [name, value] : mirrored_environment(request, read, resolve)) {
                environment[name] = value;
            }
            EXPECT_NE(environment, before);
            for (int again = 0; again < 2; ++again) {
                for (const auto& [name, value] :
                     unmirrored_environment("/tmp/u/copper", "/tmp/copper-7", read)) {
                    environment.erase(name);
                    if (value) {
                        environment[name] = *value;
                    }
                }
                EXPECT_EQ(environment, before);
            }
        }
    }
}

TEST(UnmirroredEnvironment, LeavesTheUsersOwnAlone) {
    const auto read = [](const std::string& name) -> std::optional<std::string> {
        return name == "PATH"                   ? "/tmp/u/copper.old/bin:/tmp/u/copperx"
               : name.starts_with("PYTHONDONT") ? "1"
                                                : "/x";
    };
    EXPECT_TRUE(unmirrored_environment("/tmp/u/copper", "/tmp/copper-7", read).empty());
}

TEST(MirroredEnvironment, PutsThePythonModulesInFrontOnce) {
    const EnvironmentRequest request{.mirror = mirror, .scratch = "/s", .python_modules = "/opt/python"};
    std::map<std::string, std::string> environment;
    const auto read = [&environment](const std::string& name) -> std::optional<std::string> {
        const auto found = environment.find(name);
        return found == environment.end() ? std::nullopt : std::optional(found->second);
    };
    const std::string modules = "/opt/python";
    for (const auto& [before, after] :
         std::map<std::string, std::string>{{"", modules},
                                            {"/home/u", modules + ":/home/u"},
                                            {"/soft/a", modules + ":/tmp/u/copper/soft/a"}}) {
        environment = {{"PYTHONPATH", before}};
        for (int again = 0; again < 2; ++again) {
            for (const auto& [name, value] : mirrored_environment(request, read, resolve)) {
                environment[name] = value;
            }
            EXPECT_EQ(environment["PYTHONPATH"], after);
            EXPECT_EQ(environment["COPPER_MIRRORED_TREES"], "/tmp/u/copper:/soft:/usr");
        }
    }
}

}  // namespace
}  // namespace copper::cli
