// What programs leave on disk for each other: the records of instances and of launches.
#include "daemon/control/instance.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tools/copper/nodes/launch_record.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace copper;
    const auto text = fuzz::text_of(data, size);
    if (const auto record = parse_instance_record(text)) {
        fuzz::must(parse_instance_record(to_text(*record)) == record, "the record of an instance comes back");
    }
    if (const auto record = cli::parse_launch_record(text)) {
        fuzz::must(cli::parse_launch_record(cli::to_text(*record)) == record,
                   "the record of a launch comes back");
    }
    return 0;
}
