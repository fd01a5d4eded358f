#include "daemon/control/options.hpp"
#include "daemon/control/option_defaults.hpp"
#include "daemon/control/option_values.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/mount_table.hpp"
#include "daemon/control/memory_limit.hpp"
#include "daemon/control/private_directory.hpp"

namespace copper {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// A directory of its own, and an environment without COPPER_ variables.
class OptionsTest : public testing::Test {
  protected:
    OptionsTest() {
        std::string name = fs::temp_directory_path() / "copper-options-XXXXXX";
        directory_ = ::mkdtemp(name.data());
        for (char** variable = environ; *variable != nullptr;) {
            const std::string text(*variable);
            if (text.starts_with("COPPER_")) {
                ::unsetenv(text.substr(0, text.find('=')).c_str());
                variable = environ;
            } else {
                ++variable;
            }
        }
    }
    ~OptionsTest() override {
        for (const auto& name : set_) {
            ::unsetenv(name.c_str());
        }
        fs::remove_all(directory_);
    }

    void set(const std::string& name, const std::string& value) {
        ::setenv(name.c_str(), value.c_str(), 1);
        set_.push_back(name);
    }
    std::string file(const std::string& text) {
        std::ofstream(directory_ / "copper.toml") << text;
        return directory_ / "copper.toml";
    }
    static std::string error_of(const FlagTexts& flags,
                                const std::optional<std::string>& config = std::nullopt) {
        const auto options = resolve_options(flags, config);
        return options ? "" : options.error();
    }

    fs::path directory_;
    std::vector<std::string> set_;
};

TEST_F(OptionsTest, FlagsWinOverEnvironmentOverFileOverDefault) {
    const std::string config = file("readers = 2\narity = 2\ndeadline = 2.5\n");
    set("COPPER_ARITY", "3");
    set("COPPER_DEADLINE", "3.5");
    const auto options = resolve_options({{"deadline", {"4.5"}}}, config);
    ASSERT_TRUE(options) << options.error();
    EXPECT_EQ(options->readers, 2U);
    EXPECT_EQ(options->arity, 3U);
    EXPECT_EQ(options->deadline, milliseconds(4500));
    EXPECT_EQ(options->cores, "auto");
}

TEST_F(OptionsTest, TheFileCanBeNamedByTheEnvironment) {
    set("COPPER_CONFIG", file("readers = 7"));
    EXPECT_EQ(resolve_options({}, std::nullopt)->readers, 7U);
}

TEST_F(OptionsTest, ErrorsNameTheirSource) {
    EXPECT_EQ(error_of({{"nonsense", {"1"}}}), "--nonsense: no such option");
    EXPECT_EQ(error_of({{"readers", {"0"}}}), "--readers: '0' is not a whole number from 1 to 1048576");
    EXPECT_EQ(error_of({{"job", {"a", "b"}}}), "--job: given more than once");
    const std::string config = file("nonsense = 1");
    EXPECT_EQ(error_of({}, config), config + ": key 'nonsense': no such option");
    file("arity = [1, [2]]");
    EXPECT_EQ(error_of({}, config),
              config + ": key 'arity': must be a text, a number, true or false, or an array of them");
    file("arity = ");
    EXPECT_TRUE(error_of({}, config).starts_with(config + ":1: "));
    EXPECT_EQ(error_of({}, "/nowhere.toml"), "--config /nowhere.toml: No such file or directory");
    set("COPPER_DEADLINE", "soon");
    EXPECT_EQ(error_of({}), "COPPER_DEADLINE: 'soon' is not a number of seconds from 0.01 to 3600");
}

TEST_F(OptionsTest, UnknownVariablesAreAWarning) {
    set("COPPER_NONSENSE", "1");
    set("COPPER_LAUNCHER", "mpirun");          // of `copper launch`
    set("COPPER_ROOT", "/opt/copper");         // of modules
    set("COPPER_MIRROR", "1");                 // of site prologues
    set("COPPER_MIRRORED_TREES", "/m:/tree");  // of `copper env`
    set("COPPER_ORIGINALS", "/m;");            // of `copper env`
    const auto options = resolve_options({}, std::nullopt);
    ASSERT_TRUE(options);
    EXPECT_EQ(options->warnings, std::vector<std::string>{"COPPER_NONSENSE: no such option; ignored"});
    EXPECT_EQ(read_sources(std::nullopt)->by_name.at("launcher").texts.front(), "mpirun");
}

TEST_F(OptionsTest, HiddenOptionsAreFlagsOnly) {
    set("COPPER_LOCAL", "true");
    const auto options = resolve_options({{"ready-timeout", {"5"}}}, std::nullopt);
    ASSERT_TRUE(options);
    EXPECT_FALSE(options->local);
    EXPECT_EQ(options->ready_timeout, milliseconds(5000));
    EXPECT_FALSE(error_of({}, file("ready-timeout = 5")).empty());
}

TEST_F(OptionsTest, ThePrivateDirectoryIsOfThisUser) {
    const auto own = usual_private_directory(::geteuid());
    EXPECT_EQ(resolve_options({}, std::nullopt)->private_directory, own);
    const auto options = resolve_options({{"private-directory", {own + ".0123"}}}, std::nullopt);
    ASSERT_TRUE(options) << options.error();
    EXPECT_EQ(options->private_directory, own + ".0123");
    EXPECT_EQ(std::ranges::count(to_flags(*options), "--private-directory=" + own + ".0123"), 1);
    for (const auto& place : {std::string("/tmp/x"), own + "1", own + ".1/2"}) {
        EXPECT_NE(error_of({{"private-directory", {place}}}), "") << place;
    }
}

TEST_F(OptionsTest, TheMountIsKnownAsGiven) {
    fs::create_directory(directory_ / "real");
    fs::create_directory_symlink("real", directory_ / "link");
    const auto options = resolve_options({{"mount", {directory_ / "link/m/"}}}, std::nullopt);
    ASSERT_TRUE(options) << options.error();
    EXPECT_EQ(options->mount, fs::canonical(directory_) / "real/m");
    EXPECT_EQ(options->mount_as_given, directory_ / "link/m");
    const auto by_default = resolve_options({}, std::nullopt);
    EXPECT_EQ(by_default->mount_as_given, by_default->mount);
}

TEST_F(OptionsTest, Sizes) {
    EXPECT_EQ(parse_size("0"), 0U);
    EXPECT_EQ(parse_size("17"), 17U);
    EXPECT_EQ(parse_size("3k"), 3072U);
    EXPECT_EQ(parse_size("2G"), 2ULL << 30);
    EXPECT_EQ(parse_size("1T"), 1ULL << 40);
    EXPECT_EQ(parse_size("128MiB"), 128ULL << 20);
    for (const char* text : {"", "K", "-1", "1.5G", "1GB", "1iB", "MiB", "1Mib", "1 G",
                             "99999999999999999999", "99999999999T"}) {
        EXPECT_FALSE(parse_size(text)) << text;
    }
    EXPECT_NE(error_of({{"cache-bytes", {"1M"}}}).find("too small"), std::string::npos);
    EXPECT_EQ(resolve_options({{"cache-bytes", {"64M"}}}, std::nullopt)->cache_bytes, 64U << 20);
}

TEST_F(OptionsTest, CachesOfOneMachineShareItsMemory) {
    const auto memory = memory_limit_bytes();
    const auto quarter = std::min(memory / 4, cache_bytes_default_max);
    EXPECT_EQ(default_cache_bytes(1), quarter);
    EXPECT_EQ(default_cache_bytes(64), std::clamp(memory / 4 / 64, std::uint64_t{16} << 20, quarter));
    EXPECT_EQ(default_cache_bytes(1U << 30), 16U << 20);

    DaemonOptions options;
    EXPECT_TRUE(check_cache_bytes(options, 1000));
    options.cache_bytes = memory / 4;
    EXPECT_TRUE(check_cache_bytes(options, 1));
    EXPECT_TRUE(check_cache_bytes(options, 4));
    ASSERT_FALSE(check_cache_bytes(options, 5));
    const auto megabytes = [](std::uint64_t bytes) { return std::to_string(bytes >> 20) + "M"; };
    EXPECT_EQ(check_cache_bytes(options, 5).error(),
              "--cache-bytes: 5 caches of " + megabytes(memory / 4) +
                  " do not fit into this machine's memory (" + megabytes(memory) + "): give at most " +
                  megabytes(memory / 5) + ", or leave the option out for " +
                  megabytes(default_cache_bytes(5)));
}

TEST_F(OptionsTest, SecondsAndSwitches) {
    for (const char* text : {"", "nan", "inf", "-1", "0", "1e9", "1s"}) {
        EXPECT_FALSE(resolve_options({{"deadline", {text}}}, std::nullopt)) << text;
    }
    EXPECT_TRUE(resolve_options({{"allow-other", {"true"}}}, std::nullopt)->allow_other);
    EXPECT_FALSE(resolve_options({{"no-rewrite-symlinks", {"true"}}}, std::nullopt)->rewrite_symlinks);
    EXPECT_TRUE(resolve_options({{"no-rewrite-symlinks", {"false"}}}, std::nullopt)->rewrite_symlinks);
    EXPECT_TRUE(resolve_options({{"passthrough", {"auto"}}}, std::nullopt)->passthrough);
    EXPECT_EQ(error_of({{"push", {"maybe"}}}), "--push: 'maybe' is none of auto, always and never");
    EXPECT_EQ(error_of({{"passthrough", {"on"}}}), "--passthrough: 'on' is neither auto nor off");
    EXPECT_EQ(error_of({{"allow-other", {"maybe"}}}), "--allow-other: 'maybe' is neither true nor false");
    set("COPPER_ALLOW_OTHER", "1");
    EXPECT_TRUE(resolve_options({}, std::nullopt)->allow_other);
}

TEST_F(OptionsTest, Compression) {
    EXPECT_EQ(resolve_options({}, std::nullopt)->compress, Compression::automatic);
    EXPECT_EQ(resolve_options({{"compress", {"lz4"}}}, std::nullopt)->compress, Compression::lz4);
    EXPECT_EQ(resolve_options({}, file("compress = 'off'"))->compress, Compression::off);
    EXPECT_EQ(error_of({{"compress", {"zip"}}}), "--compress: 'zip' is neither auto, off nor lz4");
    set("COPPER_COMPRESS", "lz4");
    EXPECT_EQ(resolve_options({}, std::nullopt)->compress, Compression::lz4);
}

TEST_F(OptionsTest, LogLevels) {
    EXPECT_EQ(resolve_options({{"log-level", {"5"}}}, std::nullopt)->log_level, LogLevel::debug);
    EXPECT_EQ(resolve_options({{"log-level", {"none"}}}, std::nullopt)->log_level, LogLevel::none);
    EXPECT_FALSE(resolve_options({{"log-level", {"6"}}}, std::nullopt));
}

TEST_F(OptionsTest, TreesAreResolvedAndNestedOnesDropped) {
    fs::create_directories(directory_ / "a/b");
    fs::create_directory_symlink("a", directory_ / "link");
    const std::string base = fs::canonical(directory_);
    const auto options =
        resolve_options({{"tree", {base + "//link//", base + "/a/b", base + "/a/../a"}}}, std::nullopt);
    ASSERT_TRUE(options) << options.error();
    EXPECT_EQ(options->trees, std::vector<std::string>{base + "/a"});
    set("COPPER_TREE", base + "/a:" + base);
    EXPECT_EQ(resolve_options({}, std::nullopt)->trees, std::vector<std::string>{base});
}

TEST_F(OptionsTest, BadTrees) {
    const std::string base = fs::canonical(directory_);
    EXPECT_EQ(error_of({{"tree", {base + "/none"}}}), "--tree: " + base + "/none: No such file or directory");
    const std::string config = file("");
    EXPECT_EQ(error_of({{"tree", {config}}}), "--tree: " + config + " is not a directory");
    for (const char* kernel : {"/proc", "/sys", "/dev"}) {
        EXPECT_NE(error_of({{"tree", {kernel}}}).find("inside a filesystem of the kernel"), std::string::npos)
            << kernel;
    }
}

TEST_F(OptionsTest, DefaultTrees) {
    DaemonOptions options;
    options.trees = {"/given"};
    ASSERT_TRUE(choose_trees(options, JobSpan::several_machines));
    EXPECT_EQ(options.trees, std::vector<std::string>{"/given"});
    options.trees.clear();
    ASSERT_TRUE(choose_trees(options, JobSpan::one_machine));
    EXPECT_FALSE(options.trees.empty());

    const auto mounts = read_mounts();
    const bool any_shared = std::any_of(mounts.begin(), mounts.end(), is_shared_filesystem);
    options.trees.clear();
    EXPECT_EQ(choose_trees(options, JobSpan::several_machines).has_value(), any_shared);
}

TEST_F(OptionsTest, SharedFilesystems) {
    const auto is_shared = [](const std::string& type, const std::string& source = "",
                              const std::string& options = "rw") {
        return is_shared_filesystem({.point = "/a", .type = type, .options = options, .source = source});
    };
    EXPECT_TRUE(is_shared("lustre"));
    EXPECT_TRUE(is_shared("fuse.dfuse"));
    EXPECT_FALSE(is_shared("ext4"));
    EXPECT_FALSE(is_shared(std::string(copper_filesystem_type)));
    EXPECT_TRUE(is_shared("fuse", "mfs#master:9421", "rw,user_id=0,group_id=0,allow_other"));  // MooseFS
    EXPECT_FALSE(is_shared("fuse", "something"));
    // Of this user, and of another one.
    EXPECT_TRUE(is_shared("fuse.sshfs", "host:", "rw,user_id=" + std::to_string(::geteuid())));
    EXPECT_FALSE(is_shared("fuse.sshfs", "host:", "rw,user_id=" + std::to_string(::geteuid() + 1)));
}

TEST_F(OptionsTest, MountsHaveOneName) {
    fs::create_directories(directory_ / "a");
    const std::string base = fs::canonical(directory_);
    EXPECT_EQ(canonical_mount(base + "//a/"), base + "/a");
    EXPECT_EQ(canonical_mount(base + "/./x/../a"), base + "/a");
    EXPECT_EQ(canonical_mount(base + "/missing/too"), base + "/missing/too");
    set("USER", "somebody");
    EXPECT_EQ(default_mount(), "/tmp/somebody/copper");
}

TEST_F(OptionsTest, FlagsResolveToTheSame) {
    fs::create_directories(directory_ / "a b");
    const auto first = resolve_options({{"tree", {directory_ / "a b", "/usr"}},
                                        {"deadline", {"0.25"}},
                                        {"compress", {"lz4"}},
                                        {"log-dir", {"/tmp/logs"}},
                                        {"batch-job", {"17.server"}},
                                        {"batch-run", {"1"}},
                                        {"nodes", {"512"}},
                                        {"allow-missing", {"2"}},
                                        {"launch", {"5eed"}},
                                        {"run-everywhere", {"srun", "-N4"}}},
                                       std::nullopt);
    ASSERT_TRUE(first) << first.error();
    FlagTexts texts;
    for (const auto& flag : to_flags(*first)) {
        const auto equals = flag.find('=');
        ASSERT_NE(equals, std::string::npos) << flag;
        texts[flag.substr(2, equals - 2)].push_back(flag.substr(equals + 1));
    }
    const auto second = resolve_options(texts, std::nullopt);
    ASSERT_TRUE(second) << second.error();
    EXPECT_EQ(*second, *first);
}

TEST_F(OptionsTest, SecondsBecomeFlagsToTheMillisecond) {
    const auto options =
        resolve_options({{"deadline", {"3599.999"}}, {"ready-timeout", {"86399.999"}}}, std::nullopt);
    ASSERT_TRUE(options) << options.error();
    const auto flags = to_flags(*options);
    EXPECT_NE(std::find(flags.begin(), flags.end(), "--deadline=3599.999"), flags.end());
    EXPECT_NE(std::find(flags.begin(), flags.end(), "--ready-timeout=86399.999"), flags.end());
}

TEST_F(OptionsTest, AZeroByteIsRefused) {
    EXPECT_EQ(error_of({}, file("job = \"a\\u0000b\"")),
              file("job = \"a\\u0000b\"") + ": key 'job': holds a zero byte");
}

}  // namespace
}  // namespace copper
