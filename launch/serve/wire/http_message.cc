#include "launch/serve/wire/http_message.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/status.hpp>
#include <cctype>
#include <ctime>
#include <iterator>

namespace tpsim::launch {
namespace {

namespace http = boost::beast::http;

// "Not Found".
std::string_view reason_phrase(unsigned status) {
  if (status == 413) return "Request Entity Too Large";  // Python's name; Beast has the newer one
  const boost::beast::string_view phrase = http::obsolete_reason(http::int_to_status(status));
  return {phrase.data(), phrase.size()};
}

std::string head(unsigned status, const AnswerFraming& framing, std::string_view date) {
  std::string text =
      fmt::format("HTTP/1.1 {} {}\r\ndate: {}\r\nserver: tpsim\r\n", status, reason_phrase(status), date);
  if (!framing.keep_alive) text += "connection: close\r\n";
  if (framing.keep_alive && framing.http_1_0) text += "connection: keep-alive\r\n";
  return text;
}

}  // namespace

std::string_view HttpRequest::parameter(std::string_view key) const {
  for (std::string_view rest = query; !rest.empty();) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    if (pair.size() > key.size() && pair.starts_with(key) && pair[key.size()] == '=')
      return pair.substr(key.size() + 1);
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
  }
  return {};
}

std::string status_name(unsigned status) {
  std::string name(reason_phrase(status));
  for (char& letter : name)
    letter = letter == ' ' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return name;
}

std::string response_text(const HttpResponse& response, const AnswerFraming& framing, std::string_view date) {
  std::string text = head(response.status, framing, date);
  for (const auto& [name, value] : response.headers) text += fmt::format("{}: {}\r\n", name, value);
  if (!response.body.empty()) text += fmt::format("content-type: {}\r\n", response.content_type);
  text += fmt::format("content-length: {}\r\n\r\n", response.body.size());
  if (!framing.head_only) text += response.body;
  return text;
}

std::string stream_head(std::string_view content_type, const HttpHeaders& headers,
                        const AnswerFraming& framing, std::string_view date) {
  std::string text = head(200, framing, date);
  for (const auto& [name, value] : headers) text += fmt::format("{}: {}\r\n", name, value);
  text += fmt::format("content-type: {}\r\n", content_type);
  if (!framing.http_1_0) text += "transfer-encoding: chunked\r\n";
  return text += "\r\n";
}

void append_chunk(std::string_view piece, std::string& out) {
  fmt::format_to(std::back_inserter(out), "{:x}\r\n", piece.size());
  out.append(piece);
  out.append("\r\n");
}

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  return fmt::format("{:%a, %d %b %Y %H:%M:%S GMT}", fmt::gmtime(now));
}

}  // namespace tpsim::launch
