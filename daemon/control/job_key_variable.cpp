#include "daemon/control/job_key_variable.hpp"

#include <sodium.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace copper {
namespace {

// Some launchers also keep the key under other names.
void wipe_in_environment(const std::string& text) {
    if (text.empty()) {
        return;
    }
    for (char** variable = environ; *variable != nullptr; ++variable) {
        for (char* found = std::strstr(*variable, text.c_str()); found != nullptr;
             found = std::strstr(found, text.c_str())) {
            std::memset(found, '-', text.size());
        }
    }
}

}  // namespace

tl::expected<std::optional<JobKey>, std::string> take_job_key() {
    const char* value = std::getenv(job_key_variable);
    if (value == nullptr) {
        return std::nullopt;
    }
    std::string text(value);
    const auto key = JobKey::from_text(text);
    wipe_in_environment(text);
    sodium_memzero(text.data(), text.size());
    ::unsetenv(job_key_variable);
    if (!key) {
        return tl::make_unexpected(std::string(job_key_variable) + " holds no key of `copper launch`");
    }
    return key;
}

tl::expected<void, std::string> check_job_key(const tl::expected<std::optional<JobKey>, std::string>& key,
                                              KeyNeed need) {
    if (!key) {
        return tl::make_unexpected(key.error());
    }
    if (need == KeyNeed::required && !*key) {
        return tl::make_unexpected("the job's key did not arrive: the launcher does not pass " +
                                   std::string(job_key_variable) +
                                   " on to this node (COPPER_LAUNCHER_ARGS can tell it to)");
    }
    return {};
}

}  // namespace copper
