#include "launch/serve/wire/request_reader.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <utility>

namespace tpsim::launch {
namespace {

namespace http = boost::beast::http;

std::string text(boost::beast::string_view view) { return {view.data(), view.size()}; }

}  // namespace

RequestReader::State RequestReader::read(std::string& pending) {
  if (!parser_) {
    parser_.emplace();
    parser_->eager(true);
    parser_->header_limit(static_cast<std::uint32_t>(config_.max_head_bytes));
    parser_->body_limit(config_.max_body_bytes);
    head_seen_ = false;
  }
  boost::system::error_code error;
  const std::size_t used = parser_->put(boost::asio::buffer(pending), error);
  pending.erase(0, used);
  if (error == http::error::body_limit)
    return wrong(413, "the body is longer than --max-body-bytes " + std::to_string(config_.max_body_bytes) +
                          " allows");
  if (error == http::error::header_limit)
    return wrong(431, "the head is longer than the " + std::to_string(config_.max_head_bytes) +
                          " bytes that are accepted");
  if (error && error != http::error::need_more) return wrong(400, "this is not HTTP/1.1: " + error.message());
  if (parser_->is_done()) return State::kDone;
  if (!parser_->is_header_done() || std::exchange(head_seen_, true)) return State::kMore;
  return parser_->get()[http::field::expect] == "100-continue" ? State::kContinue : State::kMore;
}

RequestReader::State RequestReader::wrong(unsigned status, std::string sentence) {
  parser_.reset();
  status_ = status;
  sentence_ = std::move(sentence);
  return State::kWrong;
}

RequestReader::Taken RequestReader::take() {
  auto message = parser_->release();
  parser_.reset();
  Taken taken;
  HttpRequest& request = taken.request;
  request.method = text(message.method_string());
  request.path = text(message.target());
  if (const std::size_t mark = request.path.find('?'); mark != std::string::npos) {
    request.query = request.path.substr(mark + 1);
    request.path.resize(mark);
  }
  request.authorization = text(message[http::field::authorization]);
  request.content_type = text(message[http::field::content_type]);
  request.accept = text(message[http::field::accept]);
  taken.framing = {.keep_alive = message.keep_alive(),
                   .http_1_0 = message.version() < 11,
                   .head_only = message.method() == http::verb::head};
  request.body = boost::beast::buffers_to_string(message.body().data());
  return taken;
}

}  // namespace tpsim::launch
