#include "launch/serve/pipelines/multipart.h"

#include <fmt/format.h>

#include <boost/algorithm/string/predicate.hpp>

#include "launch/serve/protocol/json_fields.h"

namespace tpsim::launch {
namespace {

constexpr std::string_view kForm = "multipart/form-data";

// The value of `key` in a header's parameters, without its quotes; empty: not there.
std::string_view parameter_of(std::string_view header, std::string_view key) {
  for (std::size_t at = header.find(';'); at != std::string_view::npos;) {
    std::string_view rest = header.substr(at + 1);
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    const bool found =
        boost::algorithm::istarts_with(rest, key) && rest.size() > key.size() && rest[key.size()] == '=';
    if (found) {
      std::string_view value = rest.substr(key.size() + 1);
      if (value.starts_with('"')) {
        value.remove_prefix(1);
        return value.substr(0, value.find('"'));
      }
      return value.substr(0, value.find_first_of("; \t\r"));
    }
    at = header.find(';', at + 1);
  }
  return {};
}

[[noreturn]] void refuse_form(std::string_view why) {
  throw Refusal(400, "Bad Request", fmt::format("There was an error parsing the body: {}", why));
}

}  // namespace

bool is_form(std::string_view content_type) { return boost::algorithm::istarts_with(content_type, kForm); }

std::vector<FormPart> read_form(std::string_view content_type, std::string_view body) {
  const std::string_view boundary = parameter_of(content_type, "boundary");
  if (boundary.empty()) refuse_form("the form has no boundary");
  const std::string delimiter = fmt::format("\r\n--{}", boundary);
  std::vector<FormPart> parts;
  if (!body.starts_with(std::string_view(delimiter).substr(2)))
    refuse_form("it does not begin with its boundary");
  std::size_t at = delimiter.size() - 2;
  for (;;) {
    if (body.substr(at, 2) == "--") return parts;
    const std::size_t end = body.find(delimiter, at);
    const std::size_t head = body.find("\r\n\r\n", at);
    if (end == std::string_view::npos || head == std::string_view::npos || head > end)
      refuse_form("a part has no end");
    FormPart part{
        .name = {}, .filename = {}, .content = body.substr(head + 4, end - std::min(end, head + 4))};
    for (std::string_view lines = body.substr(at, head - at); !lines.empty();) {
      lines.remove_prefix(std::min(lines.find_first_not_of("\r\n"), lines.size()));
      const std::string_view line = lines.substr(0, lines.find("\r\n"));
      if (boost::algorithm::istarts_with(line, "content-disposition:")) {
        part.name = parameter_of(line, "name");
        part.filename = parameter_of(line, "filename");
      }
      lines.remove_prefix(line.size());
    }
    if (part.name.empty()) refuse_form("a part has no name");
    parts.push_back(part);
    at = end + delimiter.size();
  }
}

}  // namespace tpsim::launch
