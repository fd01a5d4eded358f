#include "tools/copper/look/template.hpp"

#include <gtest/gtest.h>

namespace copper::cli {
namespace {

using nlohmann::json;

std::string filled(std::string_view text, const json& values) {
    return filled_in(
        text, values,
        {{"sum", [](const Values& of) { return std::to_string(of.at(0).get<int>() + of.at(1).get<int>()); }},
         {"shown", [](const Values& of) { return "<" + of.at(0).dump() + ">"; }}});
}

TEST(Template, EscapesAllValues) {
    EXPECT_EQ(filled("<i a=\"{{a}}\">{{a}}</i>", {{"a", "<b>&\"'"}}),
              "<i a=\"&lt;b&gt;&amp;&quot;&#39;\">&lt;b&gt;&amp;&quot;&#39;</i>");
    EXPECT_EQ(filled("{{shown a}}{{#a}}{{.}}{{/a}}", {{"a", "&"}}), "&lt;&quot;&amp;&quot;&gt;&amp;");
}

TEST(Template, LooksNamesUpFromTheInside) {
    const json values = {{"a", "1"}, {"b", {{"c", "2"}}}, {"d", {{{"a", "3"}}, {{"b", {{"c", "4"}}}}}}};
    EXPECT_EQ(filled("{{a}} {{b.c}}{{#d}} {{a}}-{{b.c}}{{/d}}{{#b}} {{c}}{{/b}}", values), "1 2 3-2 1-4 2");
}

TEST(Template, RepeatsSectionsOrLeavesThemOut) {
    const std::string text = "{{#a}}\n({{.}})\n{{/a}}\n{{^a}}none{{/a}}.";
    EXPECT_EQ(filled(text, {{"a", {"1", "2"}}}), "(1)\n(2)\n.");
    EXPECT_EQ(filled(text, {{"a", "1"}}), "(1)\n.");
    EXPECT_EQ(filled("{{#a}}yes{{/a}}{{^a}}no{{/a}}", {{"a", true}}), "yes");
    for (const json& nothing : {json(), json(false), json(0), json(""), json::array(), json::object()}) {
        EXPECT_EQ(filled(text, {{"a", nothing}}), "none.") << nothing;
    }
    EXPECT_EQ(filled(text, json::object()), "none.");
}

TEST(Template, FormatsWithSeveralValues) {
    EXPECT_EQ(filled("{{sum a b}} {{shown c}}", {{"a", 1}, {"b", 2}}), "3 &lt;null&gt;");
}

TEST(Template, RefusesWhatIsNoString) {
    EXPECT_THROW(filled("{{a}}", json::object()), std::exception);
    EXPECT_THROW(filled("{{a}}", {{"a", 1}}), std::exception);
    EXPECT_THROW(filled("{{unknown a}}", {{"a", "1"}}), std::exception);
}

}  // namespace
}  // namespace copper::cli
