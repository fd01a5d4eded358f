#include "tools/copper/look/template.hpp"

#include <algorithm>
#include <iterator>
#include <sstream>

namespace copper::cli {

namespace {

using nlohmann::json;

std::string escaped(const std::string& text) {
    static const std::map<char, std::string> entities = {
        {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    std::string safe;
    for (const char c : text) {
        const auto entity = entities.find(c);
        safe += entity == entities.end() ? std::string(1, c) : entity->second;
    }
    return safe;
}

void drop_end_of_line(std::string_view& text) {
    text.remove_prefix(text.starts_with('\n') ? 1 : 0);
}

class Template {
  public:
    Template(const json& values, const Formats& formats) : scopes_{&values}, formats_(formats) {}

    std::string fill_in(std::string_view text) {
        std::string result;
        for (auto begin = text.find("{{"); begin != text.npos; begin = text.find("{{")) {
            result += text.substr(0, begin);
            const auto tag = text.substr(begin + 2, text.find("}}", begin) - begin - 2);
            text.remove_prefix(begin + tag.size() + 4);
            if (tag.front() == '#' || tag.front() == '^') {
                const std::string name(tag.substr(1));
                drop_end_of_line(text);
                const auto section = text.substr(0, text.find("{{/" + name + "}}"));
                text.remove_prefix(section.size() + name.size() + 5);
                drop_end_of_line(text);
                result += section_of(section, value_of(name), tag.front() == '^');
            } else {
                result += escaped(text_of(std::string(tag)));
            }
        }
        return result.append(text);
    }

  private:
    std::string text_of(const std::string& tag) const {
        std::istringstream words(tag);
        const std::vector<std::string> names{std::istream_iterator<std::string>(words), {}};
        if (names.size() == 1) {
            return value_of(tag).get<std::string>();
        }
        Values values;
        std::transform(names.begin() + 1, names.end(), std::back_inserter(values),
                       [this](const std::string& name) { return value_of(name); });
        return formats_.at(names.front())(values);
    }

    json value_of(std::string name) const {
        if (name == ".") {
            return *scopes_.back();
        }
        std::ranges::replace(name, '.', '/');
        const json::json_pointer place("/" + name);
        for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
            if ((*scope)->is_object() && (*scope)->contains(place)) {
                return (**scope)[place];
            }
        }
        return {};
    }

    std::string section_of(std::string_view section, const json& value, bool is_inverted) {
        const bool is_none = value.empty() || value == false || value == 0 || value == "";
        std::string result;
        if (is_none == is_inverted) {
            for (const json& item : value.is_array() && !is_none ? value : json::array({value})) {
                scopes_.push_back(&item);
                result += fill_in(section);
                scopes_.pop_back();
            }
        }
        return result;
    }

    std::vector<const json*> scopes_;  // the innermost last
    const Formats& formats_;
};

}  // namespace

std::string filled_in(std::string_view text, const json& values, const Formats& formats) {
    return Template(values, formats).fill_in(text);
}

}  // namespace copper::cli
