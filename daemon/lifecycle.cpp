#include "daemon/lifecycle.hpp"

#include <array>
#include <utility>

namespace copper {

const char* to_string(StopReason reason) {
    static constexpr std::array texts = {"none",
                                         "asked to stop",
                                         "a signal",
                                         "its launcher has ended",
                                         "unmounted from outside",
                                         "could not start",
                                         "not all nodes could start",
                                         "could not start, and was not told to end"};
    return texts.at(static_cast<std::size_t>(reason));
}

bool Lifecycle::step(Stage from, Stage to) {
    if (stage_ != from) {
        return false;
    }
    stage_ = to;
    return true;
}

bool Lifecycle::fail(std::string why) {
    if (!step(Stage::starting, Stage::failed)) {
        return false;
    }
    error_ = std::move(why);
    return true;
}

bool Lifecycle::stop(StopReason reason) {
    if (is_stopping()) {
        return false;
    }
    stage_ = Stage::stopping;
    reason_ = reason;
    return true;
}

bool Lifecycle::leave(Parting parting) {
    if (!step(Stage::stopping, Stage::leaving)) {
        return false;
    }
    parting_ = parting;
    return true;
}

int Lifecycle::exit_code() const {
    // To some launchers, a failure of one process is a reason to end all.
    const bool others_go_on = reason_ == StopReason::start_failed;
    const bool failed = !error_.empty() || reason_ == StopReason::job_not_ready;
    return failed && !others_go_on ? 1 : 0;
}

}  // namespace copper
