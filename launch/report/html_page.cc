#include "launch/report/html_page.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "launch/report/json_writer.h"
#include "launch/report/page_data.h"
#include "launch/report/page_text.h"

namespace tpsim::launch {
namespace {

// Inside a script element only "</" and "<!" could end the text early; in JSON strings < may be escaped.
std::string script_safe(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  std::size_t begin = 0;
  for (std::size_t at = json.find('<'); at != std::string::npos; at = json.find('<', begin)) {
    out.append(json, begin, at - begin);
    out += "\\u003c";
    begin = at + 1;
  }
  out.append(json, begin);
  return out;
}

// What dump() makes of `text` between its quotes, where that is the text itself.
bool stands_for_itself(std::string_view text) {
  std::uint8_t other = 0;  // looked up to the end: a loop of vectors
  for (const char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    const auto above = static_cast<std::uint8_t>(byte - ' ');
    other |= static_cast<std::uint8_t>((above > '~' - ' ') | (byte == '"') | (byte == '\\'));
  }
  return other == 0;
}

// As dump(-1, ' ', ensure_ascii, replace), which looks at every byte of the steps' long text in turn.
void write_json(const nlohmann::ordered_json& value, std::string& out) {
  const auto dumped = [](const nlohmann::ordered_json& of) {
    return of.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  };
  const auto text = [&](const std::string& of) {
    if (!stands_for_itself(of)) {
      out += dumped(of);
      return;
    }
    out += '"';
    out += of;
    out += '"';
  };
  if (value.is_object()) {
    char before = '{';
    for (const auto& [name, child] : value.items()) {
      out += std::exchange(before, ',');
      text(name);
      out += ':';
      write_json(child, out);
    }
    out += value.empty() ? "{}" : "}";
  } else if (value.is_array()) {
    char before = '[';
    for (const nlohmann::ordered_json& child : value) {
      out += std::exchange(before, ',');
      write_json(child, out);
    }
    out += value.empty() ? "[]" : "]";
  } else if (value.is_string()) {
    text(value.get_ref<const std::string&>());
  } else {
    out += dumped(value);
  }
}

void replace(std::string& page, std::string_view mark, std::string_view text) {
  page.replace(page.find(mark), mark.size(), text);
}

}  // namespace

std::string html_page(const proto::ComparisonReport& report, std::vector<StepProfile> steps) {
  return html_page(page_data(to_json(report), std::move(steps)));
}

std::string html_page(const nlohmann::ordered_json& data) { return fill_page(page_template(), data); }

std::string fill_page(std::string_view text, const nlohmann::ordered_json& data) {
  std::string json;
  write_json(data, json);
  std::string page(text);
  replace(page, "@CHART_JS@", chart_js());
  replace(page, "@DATA@", script_safe(json));
  return page;
}

}  // namespace tpsim::launch
