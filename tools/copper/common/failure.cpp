#include "tools/copper/common/failure.hpp"

#include <iostream>

namespace copper::cli {

tl::unexpected<Failure> failed(std::string reason) {
    return tl::make_unexpected(Failure{exit_failed, std::move(reason)});
}
tl::unexpected<Failure> misused(std::string reason) {
    return tl::make_unexpected(Failure{exit_usage, std::move(reason)});
}
tl::unexpected<Failure> lacking(std::string reason) {
    return tl::make_unexpected(Failure{exit_prerequisite, std::move(reason)});
}

tl::unexpected<Failure> not_found(const std::string& command) {
    return tl::make_unexpected(Failure{exit_not_found, command + ": not found, or not executable"});
}

void say(const std::string& text) {
    std::cerr << "copper: " << text << std::endl;
}

}  // namespace copper::cli
