#include "daemon/control/version.hpp"

namespace copper {

std::string version_text(const std::string& program) {
    return program + " " COPPER_VERSION " (" COPPER_PARTS ")";
}

}  // namespace copper
