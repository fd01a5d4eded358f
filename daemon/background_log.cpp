#include "daemon/background_log.hpp"

#include <spdlog/details/log_msg_buffer.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <future>
#include <utility>
#include <vector>

#include "base/thread_pool.hpp"

namespace copper {

class BackgroundLog::Sink : public spdlog::sinks::sink {
  public:
    using Line = spdlog::details::log_msg_buffer;  // owns its text

    Sink(std::vector<spdlog::sink_ptr> written, std::size_t lines_waiting_max)
        : written_(std::move(written)), writer_({.threads_max = 1, .queued_max = lines_waiting_max}) {}

    void log(const spdlog::details::log_msg& line) override {
        if (!writer_.submit([this, kept = Line(line)] { write(kept); })) {
            ++dropped_;
        }
    }
    void flush() override {}
    void set_pattern(const std::string&) override {}
    void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

    // False if it takes too long.
    bool write_what_waits(std::chrono::milliseconds time_max) {
        auto written = std::make_shared<std::promise<void>>();
        return writer_.submit([written] { written->set_value(); }) &&
               written->get_future().wait_for(time_max) == std::future_status::ready;
    }

  private:
    void write(const Line& line) {
        if (const auto lines = dropped_.load(); lines != 0) {
            const auto text = std::to_string(lines) + " lines are missing: the log could not be written";
            dropped_ -= is_written({line.logger_name, spdlog::level::warn, text}) ? lines : 0;
        }
        dropped_ += is_written(line) ? 0 : 1;
    }
    // False if the disk is full, for instance.
    bool is_written(const spdlog::details::log_msg& line) {
        try {
            for (const auto& each : written_) {
                each->log(line);
                each->flush();
            }
        } catch (const std::exception&) {
            return false;
        }
        return true;
    }

    const std::vector<spdlog::sink_ptr> written_;
    std::atomic<std::size_t> dropped_ = 0;
    ThreadPool writer_;
};

BackgroundLog::BackgroundLog(Options options)
    : options_(options),
      direct_(spdlog::default_logger()),
      sink_(std::make_shared<Sink>(direct_->sinks(), options.lines_waiting_max)) {
    auto logger = std::make_shared<spdlog::logger>(direct_->name(), sink_);
    logger->set_level(direct_->level());
    spdlog::set_default_logger(std::move(logger));
}

BackgroundLog::~BackgroundLog() {
    if (sink_->write_what_waits(options_.end_time_max)) {
        spdlog::set_default_logger(direct_);
    } else {
        // Never destroyed: that would wait for their threads.
        static auto* const stuck = new std::vector<std::shared_ptr<Sink>>;
        stuck->push_back(std::move(sink_));
    }
}

}  // namespace copper
