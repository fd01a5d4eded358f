// Profiles: any bytes give an error or a profile that its own file brings back.
#include "profile/profile.hpp"

#include "tests/fuzz/fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace copper;
    const auto profile = decode_profile(fuzz::text_of(data, size));
    if (profile) {
        const auto again = decode_profile(encode(*profile));
        fuzz::must(again && *again == *profile, "a profile survives its file");
        fuzz::must(merged(*profile, *profile).uses.size() <= profile_uses_max,
                   "a merged profile has a maximum");
    }
    return 0;
}
