#include "launch/report/html_page.h"

#include <boost/algorithm/string/replace.hpp>

namespace tpsim::launch {
namespace {

void replace(std::string& page, std::string_view mark, std::string_view text) {
  page.replace(page.find(mark), mark.size(), text);
}

}  // namespace

std::string html_page(const nlohmann::ordered_json& data) { return fill_page(page_template(), data); }

std::string fill_page(std::string_view text, const nlohmann::ordered_json& data) {
  std::string json = data.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  // Inside a script element only "</" and "<!" could end the text early; in JSON strings < may be escaped.
  boost::algorithm::replace_all(json, "<", "\\u003c");
  std::string page(text);
  replace(page, "@CHART_JS@", chart_js());
  replace(page, "@DATA@", json);
  return page;
}

}  // namespace tpsim::launch
