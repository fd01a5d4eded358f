#include "tools/copper/programs/prefetch.hpp"

#include <gtest/gtest.h>

namespace copper::cli {
namespace {

using nlohmann::json;

json one(const char* path, const char* state, int fetched, int left) {
    return {{"path", path}, {"state", state}, {"fetched", fetched},
            {"failed", 1},  {"left", left},   {"bytes", 3U << 20U}};
}

json progress(int fetched, int left) {
    return {{"paths", {one("/lus/first", "done", 7, 0), one("/lus/second", "running", fetched, left)}}};
}

TEST(PrefetchProgress, IsOfThePathThatIsBeingRead) {
    EXPECT_EQ(progress_line(progress(49, 50), 100),
              "[##########----------] 50 of at least 100 objects, 3 MiB  /lus/second");
    EXPECT_EQ(progress_line(progress(99, 0), 100),
              "[####################] 100 of at least 100 objects, 3 MiB  /lus/second");
    EXPECT_EQ(progress_line({{"paths", {one("/lus/first", "done", 7, 0)}}}, 100), "");
    EXPECT_EQ(progress_line(json::object(), 100), "");
}

TEST(PrefetchProgress, FitsTheTerminal) {
    EXPECT_EQ(progress_line(progress(49, 50), 70),
              "[##########----------] 50 of at least 100 objects, 3 MiB  /lus/second");
    EXPECT_EQ(progress_line(progress(49, 50), 69),
              "[##########----------] 50 of at least 100 objects, 3 MiB");
    EXPECT_EQ(progress_line(progress(49, 50), 10), "[########");
}

TEST(PrefetchProgress, TellsHowFastItIs) {
    json running = progress(49, 50);
    running["paths"][1]["seconds"] = 1.5;
    EXPECT_EQ(progress_line(running, 100),
              "[##########----------] 50 of at least 100 objects, 3 MiB in 1.5 s (2 MiB/s)  /lus/second");
}

}  // namespace
}  // namespace copper::cli
