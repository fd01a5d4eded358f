#include "daemon/control/timeline.hpp"

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "base/json_text.hpp"

namespace copper {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds longest_step = Timeline::shortest_step * (std::int64_t{1} << 24U);  // 48 days
constexpr milliseconds latest{4'000'000'000'000};                                          // in 2096

void add_to(Timeline::Counts& sum, const Timeline::Counts& more) {
    std::transform(sum.begin(), sum.end(), more.begin(), sum.begin(), std::plus<>());
}

}  // namespace

void Timeline::add(Time at, const Counts& counts) {
    if (counts != Counts{}) {
        const auto since_epoch = std::chrono::floor<milliseconds>(at.time_since_epoch());
        add_to(steps_[since_epoch / step_], counts);
        shorten_list();
    }
}

void Timeline::add(const Timeline& other) {
    lengthen_to(other.step_);
    const auto longer = step_ / other.step_;
    for (const auto& [number, counts] : other.steps_) {
        add_to(steps_[number / longer], counts);
    }
    shorten_list();
}

void Timeline::lengthen_to(milliseconds step) {
    while (step_ < step) {
        step_ *= 2;
        std::map<std::int64_t, Counts> longer;
        for (const auto& [number, counts] : steps_) {
            add_to(longer[number / 2], counts);
        }
        steps_ = std::move(longer);
    }
}

void Timeline::shorten_list() {
    while (steps_.size() > steps_max && step_ < longest_step) {
        lengthen_to(step_ * 2);
    }
}

json to_json(const Timeline& timeline) {
    const auto& steps = timeline.steps();
    const std::int64_t first = steps.empty() ? 0 : steps.begin()->first;
    json list = json::array();
    for (const auto& [number, counts] : steps) {
        json row = {number - first};
        for (const auto count : counts) {
            row.push_back(count);
        }
        list.push_back(std::move(row));
    }
    return {{"begin_ms", first * timeline.step().count()},
            {"step_ms", timeline.step().count()},
            {"columns", Timeline::columns},
            {"steps", std::move(list)}};
}

Timeline timeline_from(const json& text) {
    const milliseconds step(whole_number<std::int64_t>(text.at("step_ms")));
    const milliseconds begin(whole_number<std::int64_t>(text.at("begin_ms")));
    const auto require = [](bool holds) {
        if (!holds) {
            throw std::out_of_range("no time line");
        }
    };
    require(step >= Timeline::shortest_step && step <= longest_step);
    require(begin >= milliseconds::zero() && begin <= latest);
    Timeline timeline;
    for (const auto& row : text.at("steps")) {
        const auto number = whole_number<std::uint32_t>(row.at(0));
        require(number <= latest / step);
        Timeline::Counts counts = {};
        for (std::size_t i = 0; i < counts.size(); ++i) {
            counts[i] = whole_number<std::uint64_t>(row.at(i + 1));
        }
        Timeline one(step);
        one.add(Timeline::Time(begin + step * number), counts);
        timeline.add(one);
    }
    return timeline;
}

}  // namespace copper
