#include "daemon/pacer.hpp"

#include <algorithm>

namespace copper {

Pacer::Pause Pacer::next(Activity activity, Machine machine, TimePoint now) {
    if (machine == Machine::rings) {
        // A look may not find all that has arrived.
        return activity == Activity::moved ? Pause::zero() : options_.pause_rung;
    }
    if (activity == Activity::moved) {
        polls_ = 0;
        last_move_ = now;
        pause_ = options_.pause_min;
    }
    const auto quiet = now - last_move_;
    const bool crowded = machine == Machine::crowded;
    if (crowded) {
        pause_ = std::max(pause_, options_.pause_crowded);
    } else if (polls_ < options_.eager_polls) {
        ++polls_;
        return Pause::zero();
    }
    if (quiet < options_.recent) {
        return pause_;
    }
    Pause max = quiet < options_.silence ? options_.pause_max : options_.pause_max_in_silence;
    if (activity == Activity::waiting) {
        max = crowded ? options_.pause_crowded : options_.pause_max_waiting;
    }
    pause_ = std::min(pause_ * 2, max);
    return pause_;
}

}  // namespace copper
