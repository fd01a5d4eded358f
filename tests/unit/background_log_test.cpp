#include "daemon/background_log.hpp"

#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/guarded.hpp"

namespace copper {
namespace {

using std::chrono::milliseconds;

// A log file on a filesystem that hangs until release(), and that can be full.
class HangingSink : public spdlog::sinks::base_sink<std::mutex> {
  public:
    void release() {
        state_.lock()->hangs = false;
        changed_.notify_all();
    }
    void set_full(bool is_full) { state_.lock()->is_full = is_full; }
    std::vector<std::string> lines() { return state_.lock()->lines; }
    void wait_for_attempts(int attempts) {
        auto state = state_.lock();
        changed_.wait(state.lock(), [&] { return state->attempts >= attempts; });
    }
    void wait_for(std::size_t lines) {
        auto state = state_.lock();
        changed_.wait(state.lock(), [&] { return state->lines.size() >= lines; });
    }

  protected:
    void sink_it_(const spdlog::details::log_msg& line) override {
        auto state = state_.lock();
        ++state->attempts;
        changed_.notify_all();
        changed_.wait(state.lock(), [&] { return !state->hangs; });
        if (state->is_full) {
            spdlog::throw_spdlog_ex("no space left", ENOSPC);
        }
        state->lines.emplace_back(line.payload.begin(), line.payload.end());
        changed_.notify_all();
    }
    void flush_() override {}

  private:
    struct State {
        bool hangs = true;
        int attempts = 0;
        bool is_full = false;
        std::vector<std::string> lines;
    };
    Guarded<State> state_;
    std::condition_variable changed_;
};

class BackgroundLogTest : public testing::Test {
  protected:
    ~BackgroundLogTest() override { spdlog::set_default_logger(before_); }

    const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
    const std::shared_ptr<HangingSink> file_ = std::make_shared<HangingSink>();
    const std::shared_ptr<spdlog::logger> direct_ = [this] {
        auto logger = std::make_shared<spdlog::logger>("direct", file_);
        spdlog::set_default_logger(logger);
        return logger;
    }();
};

TEST_F(BackgroundLogTest, WritesEveryLineInOrderBeforeItEnds) {
    std::optional<BackgroundLog> log(std::in_place);
    file_->release();
    for (int line = 0; line < 100; ++line) {
        spdlog::warn("line {}", line);
    }
    log.reset();
    const auto lines = file_->lines();
    ASSERT_EQ(100U, lines.size());
    EXPECT_EQ("line 0", lines.front());
    EXPECT_EQ("line 99", lines.back());
    EXPECT_EQ(direct_, spdlog::default_logger());
}

TEST_F(BackgroundLogTest, ADirectoryThatHangsDelaysNobodyAndTheLogSaysWhatIsMissing) {
    std::optional<BackgroundLog> log(std::in_place, BackgroundLog::Options{.lines_waiting_max = 10});
    spdlog::warn("line 0");
    file_->wait_for_attempts(1);
    for (int line = 1; line < 1000; ++line) {
        spdlog::warn("line {}", line);
    }
    file_->release();
    file_->wait_for(12);
    spdlog::warn("the last line");
    log.reset();
    const auto lines = file_->lines();
    ASSERT_EQ(13U, lines.size()) << "the line that hung, those that waited, and two more";
    EXPECT_EQ("line 0", lines.front());
    EXPECT_EQ("989 lines are missing: the log could not be written", lines[1]);
    EXPECT_EQ("the last line", lines.back());
}

TEST_F(BackgroundLogTest, AFullDiskEndsNobodyAndTheLogSaysWhatIsMissing) {
    std::optional<BackgroundLog> log(std::in_place);
    file_->set_full(true);
    file_->release();
    spdlog::warn("line 0");
    spdlog::warn("line 1");
    file_->wait_for_attempts(3);  // the second line comes with a line that one is missing
    file_->set_full(false);
    spdlog::warn("line 2");
    log.reset();
    EXPECT_EQ((std::vector<std::string>{"2 lines are missing: the log could not be written", "line 2"}),
              file_->lines());
}

TEST_F(BackgroundLogTest, EndsAlthoughTheDirectoryHangs) {
    std::optional<BackgroundLog> log(std::in_place, BackgroundLog::Options{.end_time_max = milliseconds(1)});
    spdlog::warn("a line");
    log.reset();
    spdlog::warn("another line");
    EXPECT_NE(direct_, spdlog::default_logger());
    file_->release();
}

}  // namespace
}  // namespace copper
