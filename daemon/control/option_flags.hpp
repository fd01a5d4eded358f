// The flags of `copperd`. `copper launch` has them too.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>

#include "daemon/control/option_values.hpp"
#include "daemon/control/options.hpp"
#include "daemon/control/version.hpp"

namespace copper {

// `texts` must outlive the parse. `leave_out`: flags that the application defines itself.
inline void add_option_flags(CLI::App& app, FlagTexts& texts,
                             const std::vector<std::string>& leave_out = {}) {
    for (const auto& row : option_table()) {
        if (std::find(leave_out.begin(), leave_out.end(), row.name) != leave_out.end()) {
            continue;
        }
        CLI::Option* option = nullptr;
        const std::string flag =
            (row.letter != '\0' ? std::string("-") + row.letter + "," : "") + "--" + row.name;
        if (row.argument.empty()) {
            // --name, or --name=false
            option = app.add_flag_function(
                flag,
                [&texts, name = row.name](std::int64_t count) {
                    texts[name] = {count > 0 ? "true" : "false"};
                },
                row.help);
            option->check([](const std::string& text) {
                const auto parsed = parse_switch(text);
                return parsed ? std::string() : parsed.error();
            });
        } else {
            option = app.add_option_function<std::vector<std::string>>(
                flag,
                [&texts, name = row.name](const std::vector<std::string>& given) { texts[name] = given; },
                row.help);
            option->type_name(row.argument)->allow_extra_args(false);
        }
        if (row.audience != OptionRow::Audience::user) {
            option->group("");
        }
    }
}

// The command line of `copperd`.
inline void add_daemon_command_line(CLI::App& app, FlagTexts& texts, std::string& config) {
    app.name("copperd");
    app.description("The Copper daemon of one node; normally started by 'copper launch'");
    app.set_version_flag("--version", version_text("copperd"));
    app.add_option("--config", config, "a TOML file with options")->type_name("FILE");
    add_option_flags(app, texts);
    app.footer("Example:\n  copperd --mount /tmp/mirror --tree /lustre/sw/conda");
}

}  // namespace copper
