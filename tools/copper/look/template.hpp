// Fills in a template of HTML with values.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace copper::cli {

// How values become text, by name. A value that is absent is null.
using Values = std::vector<nlohmann::json>;
using Formats = std::map<std::string, std::function<std::string(const Values&)>>;

// A small part of the languages Mustache and Handlebars:
//
//   {{name}}              a string, escaped for HTML: for text, and for attributes in quotes
//   {{format name ...}}   any values as text, escaped likewise
//   {{#name}}...{{/name}} once for each item of an array; for other values, once
//   {{^name}}...{{/name}} once if {{#name}} has nothing: absent, null, false, 0, "", [] or {}
//
// A name is looked up in `values`, and within a section in its item before; `a.b` is b in a. {{.}} is the
// item itself. The end of a line after the begin or end of a section belongs to it. No section stands within
// one of the same name. Throws a std::exception if {{name}} is no string.
std::string filled_in(std::string_view text, const nlohmann::json& values, const Formats& formats);

}  // namespace copper::cli
