// Options from all their sources. An input is the text of a configuration file, and behind it, each after a
// byte 1f (unit separator), variables of the environment ("COPPER_ARITY=2") and flags ("--arity=2").
#include "daemon/control/options.hpp"

#include "tests/fuzz/fuzz.hpp"

namespace copper::fuzz {
namespace {

constexpr char separator = '\x1f';

// Takes what stands before the next separator.
std::string_view take_part(std::string_view& text) {
    const auto part = text.substr(0, text.find(separator));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    return part;
}

void add_flag(std::string_view flag, FlagTexts& flags) {
    const auto equals = flag.find('=');
    if (flag.starts_with("--") && equals != std::string_view::npos) {
        flags[std::string(flag.substr(2, equals - 2))].emplace_back(flag.substr(equals + 1));
    }
}

void pass_on(const DaemonOptions& options) {
    FlagTexts flags;
    for (const auto& flag : to_flags(options)) {
        must(flag.find('\0') == std::string::npos, "an option can be passed to a program");
        add_flag(flag, flags);
    }
    const auto back = resolve_options(flags, Sources{});
    must(back.has_value(), "options are valid as flags");
    DaemonOptions expected = options;
    expected.warnings.clear();
    must(*back == expected, "options as flags resolve to the same");
}

}  // namespace
}  // namespace copper::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace copper;
    auto text = fuzz::text_of(data, size);
    Sources sources;
    if (const auto added = add_config(fuzz::take_part(text), "copper.toml", sources); !added) {
        fuzz::must(added.error().starts_with("copper.toml:"), "an error names its source");
    }
    FlagTexts flags;
    while (!text.empty()) {
        const auto part = fuzz::take_part(text);
        add_variable(part, sources);
        fuzz::add_flag(part, flags);
    }
    const auto options = resolve_options(flags, std::move(sources));
    if (options) {
        fuzz::pass_on(*options);
    } else {
        fuzz::must(!options.error().empty(), "a refusal has a reason");
    }
    return 0;
}
