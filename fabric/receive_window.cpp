#include "fabric/receive_window.hpp"

#include <algorithm>

namespace copper {

std::size_t ReceiveWindow::missing() const {
    const std::size_t wanted =
        std::clamp(with_message_ + perhaps_held_ + options_.free, options_.posted, options_.most);
    return wanted - std::min(wanted, posted_.size());
}

void ReceiveWindow::post(std::size_t slot) {
    posted_.push_back({.slot = slot, .number = next_number_++});
}

void ReceiveWindow::complete(std::size_t slot) {
    const auto place =
        std::find_if(posted_.begin(), posted_.end(), [slot](const Posted& one) { return one.slot == slot; });
    const auto before = static_cast<std::size_t>(place - posted_.begin());
    with_message_ = before < with_message_ ? with_message_ - 1 : before;
    if (place->number >= known_from_) {
        perhaps_held_ = 0;
    }
    posted_.erase(place);
}

void ReceiveWindow::lose_link(std::size_t messages_under_way_max) {
    perhaps_held_ = std::min(perhaps_held_ + messages_under_way_max, options_.most);
    known_from_ = next_number_;
}

}  // namespace copper
