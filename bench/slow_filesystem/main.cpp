// An emulated parallel filesystem: shows a directory as slowly as a model says. See bench/storm.
//
//   copper_slow_filesystem SOURCE MOUNTPOINT --shared FILE [--model NAME|FILE.toml] [--trace FILE]
//   [--age SECONDS] [--hide-acls]
//   copper_slow_filesystem --counters FILE
#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <optional>

#include "bench/slow_filesystem/filesystem.hpp"

namespace {

using namespace copper::bench;

struct Words {
    std::string source;
    std::string mount_point;
    std::string model = "lustre";
    std::string shared;
    std::string trace;
    std::string counters;
    std::time_t age_seconds = SlowFilesystemOptions().age_seconds;
    bool hides_acls = false;
};

int fail(const std::string& reason) {
    std::cerr << "copper_slow_filesystem: " << reason << "\n";
    return 1;
}

std::string about_models() {
    std::string text = "Models:\n";
    for (const Preset& preset : presets()) {
        text += "  " + std::string(preset.name) + ": " + std::string(preset.source) + "\n";
    }
    return text + "  FILE.toml: " + model_keys() + "\n";
}

int print_counters(const std::string& file) {
    const auto shared = find_shared_state(file);
    if (!shared) {
        return fail(shared.error());
    }
    std::cout << counters_json(**shared) << std::endl;
    return std::cout.good() ? 0 : fail("cannot write to standard output");
}

int serve(const Words& words) {
    const auto model = find_model(words.model);
    if (!model) {
        return fail(model.error());
    }
    std::error_code error;
    const auto source = std::filesystem::canonical(words.source, error);
    if (error) {
        return fail("source " + words.source + ": " + error.message());
    }
    const auto mount_point = std::filesystem::canonical(words.mount_point, error);
    if (error) {
        return fail("mount point " + words.mount_point + ": " + error.message());
    }
    const auto shared = open_shared_state(words.shared);
    if (!shared) {
        return fail(shared.error());
    }
    const auto served = serve_slow_filesystem({.source = source,
                                               .mount_point = mount_point,
                                               .model = *model,
                                               .shared = *shared,
                                               .trace = words.trace,
                                               .age_seconds = words.age_seconds,
                                               .hides_acls = words.hides_acls});
    return served ? 0 : fail(served.error());
}

}  // namespace

int main(int count, char** arguments) {
    Words words;
    CLI::App app("Shows a directory, read-only, as slowly as a parallel filesystem",
                 "copper_slow_filesystem");
    app.footer(about_models());
    auto* const source = app.add_option("SOURCE", words.source, "The directory that is shown");
    auto* const mount_point = app.add_option("MOUNTPOINT", words.mount_point, "Where it is shown");
    auto* const shared = app.add_option("--shared", words.shared, "What all mounts of one filesystem share");
    auto* const model =
        app.add_option("--model", words.model, "A preset or a TOML file")->capture_default_str();
    auto* const trace = app.add_option("--trace", words.trace, "Write each request into this file");
    auto* const age =
        app.add_option("--age", words.age_seconds, "All last changes look so many seconds older")
            ->capture_default_str();
    auto* const hide = app.add_flag("--hide-acls", words.hides_acls,
                                    "Do not list access control lists; asked for by name, they are there");
    app.add_option("--counters", words.counters,
                   "Print the counters of a shared file as JSON, and nothing else")
        ->excludes(source, mount_point, shared, model, trace, age, hide);
    try {
        app.parse(count, arguments);
        if (!words.counters.empty()) {
            return print_counters(words.counters);
        }
        if (words.source.empty() || words.mount_point.empty() || words.shared.empty()) {
            throw CLI::RequiredError("SOURCE, MOUNTPOINT and --shared");
        }
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    return serve(words);
}
