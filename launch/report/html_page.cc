#include "launch/report/html_page.h"

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

void replace(std::string& page, std::string_view mark, std::string_view text) {
  page.replace(page.find(mark), mark.size(), text);
}

}  // namespace

std::string html_page(const nlohmann::ordered_json& data) { return fill_page(page_template(), data); }

std::string fill_page(std::string_view text, const nlohmann::ordered_json& data) {
  const std::string json =
      data.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  std::string page(text);
  replace(page, "@CHART_JS@", chart_js());
  replace(page, "@DATA@", script_safe(json));
  return page;
}

}  // namespace tpsim::launch
