#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "daemon/control/fingerprint.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tools/copper/programs/environment.hpp"
#include "tools/copper/programs/mirror.hpp"

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

// No such tree exists, so whoever asked its filesystem would find nothing.
TEST(ResolveUpTo, FollowsLinksButAsksNoTree) {
    const test::TemporaryDirectory directory;
    const std::string& here = directory.path();
    std::filesystem::create_directories(here + "/home/u");
    std::filesystem::create_symlink("/soft/py", here + "/home/u/env");
    std::filesystem::create_symlink("u/env/lib", here + "/home/relative");
    std::filesystem::create_symlink("round", here + "/round");
    const auto up_to = [](const std::string& path) { return resolve_up_to(mirror, path); };
    EXPECT_EQ(up_to("/soft/py/bin"), "/soft/py/bin");
    EXPECT_EQ(up_to(here + "/home/u/env/bin"), "/soft/py/bin");
    EXPECT_EQ(up_to(here + "/home/../home/./relative/"), "/soft/py/lib");
    EXPECT_EQ(up_to(here + "/home//u/"), here + "/home/u");
    EXPECT_EQ(up_to("/"), "/");
    EXPECT_EQ(up_to(here + "/absent/bin"), std::nullopt);
    EXPECT_EQ(up_to(here + "/round"), std::nullopt);
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

using Environment = std::map<std::string, std::string>;

ReadVariable reader_of(const Environment& environment) {
    return [&environment](const std::string& name) -> std::optional<std::string> {
        const auto found = environment.find(name);
        return found == environment.end() ? std::nullopt : std::optional(found->second);
    };
}

Environment after(const Changes& changes, Environment environment) {
    for (const auto& [name, value] : changes) {
        environment.erase(name);
        if (value) {
            environment[name] = *value;
        }
    }
    return environment;
}

Environment mirrored(const Environment& before, const EnvironmentRequest& request) {
    return after(mirrored_environment(request, reader_of(before), resolve), before);
}

Environment unmirrored(const Environment& before) {
    return after(unmirrored_environment(reader_of(before)).changes, before);
}

// What changes.
Environment environment_of(const Environment& before, bool pycache) {
    const EnvironmentRequest request{
        .mirror = mirror, .scratch = "/s", .python_bytecode_in_scratch = pycache};
    return after(mirrored_environment(request, reader_of(before), resolve), {});
}

TEST(MirroredEnvironment, RewritesWhatIsSetAndFillsWhatIsNot) {
    const auto changed = environment_of(
        {{"PATH", "/soft/bin:/home/u/bin"}, {"PYTHONPATH", "/home/u"}, {"NUMBA_CACHE_DIR", "/mine"}}, false);
    EXPECT_EQ(changed.at("PATH"), "/tmp/u/copper/soft/bin:/home/u/bin:/soft/bin");
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
        // What programs look through for absent names has no original behind it.
        EXPECT_EQ(changed.at(name), list_through_mirror(mirror, value, resolve) +
                                        (name == "PATH" ? ":/soft/env/bin:/bin" : ""));
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
    const auto leads = [](const std::string& path, const Changes& changed) {
        return leads_into(mirror, changed, [&](const std::string& name) {
            return name == "PATH" ? std::optional(path) : std::nullopt;
        });
    };
    EXPECT_FALSE(leads("/bin:/home/u", {{"MPLCONFIGDIR", "/tmp/u/copper/x"}}));
    EXPECT_TRUE(leads("/bin:/tmp/u/copper/soft", {}));
    EXPECT_TRUE(leads("/bin", {{"PYTHONPATH", "/home/u:/tmp/u/copper/soft"}}));
}

EnvironmentRequest request_with(const std::string& mount, bool pycache = false, bool modules = true) {
    return {.mirror = {.mount = mount, .trees = {"/soft", "/usr"}, .mounts = {}},
            .scratch = "/tmp/copper-7/scratch",
            .python_bytecode_in_scratch = pycache,
            .python_modules = modules ? "/tmp/copper-7/hash/python" : ""};
}

TEST(UnmirroredEnvironment, GivesBackWhatWas) {
    const Environment before = {{"PATH", "/soft/bin::/home/u/bin:/bin:/soft/bin"},
                                {"PYTHONPATH", "/home/u"},
                                {"NUMBA_CACHE_DIR", "/mine"},
                                {"PYTHONDONTWRITEBYTECODE", "1"},
                                {"PYTHONPYCACHEPREFIX", "/tmp/copper-7/scratch/pycache"},
                                {"COPPER_MIRRORED_TREES", "/x:/y"},
                                {"PERL5LIB", "a b;c=d%e\nf'!"},
                                {"CONDA_PREFIX", "/soft/50%;=\n'!"},
                                {"GDAL_DATA", ""}};
    for (const std::string mount : {"/tmp/u/copper", "/tmp/u/copper.12", "/tmp/a;b=c%d"}) {
        for (const bool pycache : {false, true}) {
            for (const bool modules : {false, true}) {
                for (const auto& environment : {before, Environment()}) {
                    const auto there = mirrored(environment, request_with(mount, pycache, modules));
                    EXPECT_NE(there, environment);
                    EXPECT_EQ(there.at("COPPER_ORIGINALS").find('\n'), std::string::npos);
                    EXPECT_EQ(unmirrored(there), environment);
                    EXPECT_EQ(unmirrored(unmirrored(there)), environment);
                }
            }
        }
    }
}

TEST(UnmirroredEnvironment, TakesTheMirrorOutOfWhatWasChangedSince) {
    auto environment =
        mirrored({{"PATH", "/soft/bin:/bin"}, {"PYTHONPATH", "/soft/lib"}}, request_with("/tmp/u/copper"));
    environment["PATH"] = "/home/u/bin:" + environment["PATH"] + ":/tmp/u/copperx/bin";
    environment["PYTHONPATH"] += ":/home/u";
    environment["LD_LIBRARY_PATH"] = "/tmp/u/copper/soft/lib";
    environment["MPLCONFIGDIR"] = "/home/u/mpl";
    environment.erase("TRITON_CACHE_DIR");
    const auto back = unmirrored(environment);
    EXPECT_EQ(back, (Environment{{"PATH", "/home/u/bin:/soft/bin:/usr/bin:/bin:/tmp/u/copperx/bin"},
                                 {"PYTHONPATH", "/soft/lib:/home/u"},
                                 {"LD_LIBRARY_PATH", "/soft/lib"},
                                 {"MPLCONFIGDIR", "/home/u/mpl"}}));
}

TEST(UnmirroredEnvironment, LeavesOthersAlone) {
    for (const std::string originals :
         {"", "x", "/m", "/m;", "/m;;A", "/m;;A=1=2=3", "/m;;=1", "/m;%0;A=1", "/m;;A=1=%00"}) {
        const auto whole = originals + ";" + fingerprint_of(originals);
        for (const auto& text : {originals, whole}) {
            const Environment environment = {{"PATH", "/m/bin"}, {"COPPER_ORIGINALS", text}};
            const auto back = unmirrored(environment);
            EXPECT_EQ(back,
                      text == "/m;;" + fingerprint_of("/m;") ? Environment({{"PATH", "/bin"}}) : environment)
                << text;
        }
    }
    const auto undo = unmirrored_environment(reader_of({{"PATH", "/tmp/u/copper/bin"}}));
    EXPECT_TRUE(undo.changes.empty());
    EXPECT_FALSE(undo.is_damaged);
}

TEST(UnmirroredEnvironment, OriginalsThatWereCutAreNotHalfUsed) {
    const auto there =
        mirrored({{"PATH", "/soft/bin:/bin"}, {"PYTHONPATH", "/soft/lib"}}, request_with("/tmp/u/copper"));
    const auto whole = there.at("COPPER_ORIGINALS");
    for (std::size_t length = 0; length < whole.size(); ++length) {
        auto cut = there;
        cut["COPPER_ORIGINALS"] = whole.substr(0, length);
        const auto undo = unmirrored_environment(reader_of(cut));
        EXPECT_TRUE(undo.is_damaged) << length;
        EXPECT_TRUE(undo.changes.empty()) << length;
    }
    for (std::size_t at = 0; at < whole.size(); ++at) {
        auto changed = there;
        changed["COPPER_ORIGINALS"][at] ^= 1;
        EXPECT_TRUE(unmirrored_environment(reader_of(changed)).is_damaged) << at;
    }
}

TEST(UnmirroredEnvironment, OriginalsHaveTheSizeOfAVariable) {
    std::string path = "/soft/bin:/bin";
    while (path.size() < 60'000) {
        path += ":/home/" + std::to_string(path.size());
    }
    const Environment before = {{"PATH", path},
                                {"PYTHONPATH", "/soft/lib:" + std::string(50'000, 'x')},
                                {"LD_LIBRARY_PATH", "/soft/lib:" + std::string(50'000, '=')}};
    const auto there = mirrored(before, request_with("/tmp/u/copper"));
    constexpr std::size_t argument_bytes_max = std::size_t{128} << 10;  // MAX_ARG_STRLEN of Linux
    EXPECT_LT(there.at("COPPER_ORIGINALS").size() + std::string_view("COPPER_ORIGINALS=").size() + 1,
              argument_bytes_max);
    const auto undo = unmirrored_environment(reader_of(there));
    EXPECT_EQ(undo.lost, std::vector<std::string>{"LD_LIBRARY_PATH"}) << "the longest one, as text";
    const auto back = after(undo.changes, there);
    EXPECT_EQ(back.at("PATH"), path);
    EXPECT_EQ(back.at("PYTHONPATH"), before.at("PYTHONPATH"));
    EXPECT_EQ(back.at("LD_LIBRARY_PATH"), before.at("LD_LIBRARY_PATH")) << "nothing else was in it";
    EXPECT_EQ(lost_by(mirrored_environment(request_with("/tmp/u/copper"), reader_of(before), resolve)),
              undo.lost);
    EXPECT_TRUE(lost_by(mirrored_environment(request_with("/tmp/u/copper"), reader_of({}), resolve)).empty());
}

TEST(MirroredEnvironment, ReplacesAnotherMirror) {
    const Environment before = {{"PATH", "/soft/bin:/bin"}, {"PYTHONPATH", "/soft/lib"}};
    const auto first = mirrored(before, request_with("/tmp/u/first", true));
    const auto second = request_with("/tmp/u/second", false, false);
    EXPECT_EQ(mirrored(first, second), mirrored(before, second));
    EXPECT_EQ(unmirrored(mirrored(first, second)), before);
}

TEST(MirroredEnvironment, TakesInWhatWasChangedSince) {
    const auto request = request_with("/tmp/u/copper");
    auto environment = mirrored({{"PATH", "/soft/bin"}}, request);
    environment["PATH"] = "/soft/env/bin:" + environment["PATH"];
    environment = mirrored(environment, request);
    EXPECT_EQ(environment["PATH"],
              "/tmp/u/copper/soft/env/bin:/tmp/u/copper/soft/bin:/soft/env/bin:/soft/bin");
    EXPECT_EQ(unmirrored(environment), (Environment{{"PATH", "/soft/env/bin:/soft/bin"}}));
}

TEST(MirroredEnvironment, PutsThePythonModulesInFrontOnce) {
    const EnvironmentRequest request{.mirror = mirror, .scratch = "/s", .python_modules = "/opt/python"};
    const std::string modules = "/opt/python";
    for (const auto& [before, behind] : Environment{{"", modules},
                                                    {"/home/u", modules + ":/home/u"},
                                                    {"/soft/a", modules + ":/tmp/u/copper/soft/a"}}) {
        Environment environment = {{"PYTHONPATH", before}};
        for (int again = 0; again < 2; ++again) {
            environment = mirrored(environment, request);
            EXPECT_EQ(environment["PYTHONPATH"], behind);
            EXPECT_EQ(environment["COPPER_MIRRORED_TREES"], "/tmp/u/copper:/soft:/usr");
        }
    }
}

}  // namespace
}  // namespace copper::cli
