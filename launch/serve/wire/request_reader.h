// Bytes to requests: HTTP/1.1 as Beast reads it, within limits.
#pragma once

#include <boost/beast/http/dynamic_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <optional>
#include <string>

#include "launch/serve/wire/http_message.h"
#include "launch/serve/wire/wire_config.h"

namespace tpsim::launch {

class RequestReader {
 public:
  enum class State {
    kMore,      // needs more bytes
    kContinue,  // as kMore, and its client waits to be told to go on; said once a request
    kDone,      // take() it
    kWrong      // status() and sentence() say what is; nothing more can be read
  };

  // Within the limits of `config`, which must outlive it.
  explicit RequestReader(const WireConfig& config) : config_(config) {}

  // Reads on in `pending`, and takes away what it has used.
  State read(std::string& pending);

  struct Taken {
    HttpRequest request;  // `arrived` is the caller's to fill in
    AnswerFraming framing;
  };
  // REQUIRES: read() said kDone. The next read() begins another request.
  Taken take();

  unsigned status() const { return status_; }
  const std::string& sentence() const { return sentence_; }

 private:
  State wrong(unsigned status, std::string sentence);

  const WireConfig& config_;
  // Its body grows with what comes, not with what was announced.
  std::optional<boost::beast::http::request_parser<boost::beast::http::dynamic_body>> parser_;
  bool head_seen_ = false;
  unsigned status_ = 0;
  std::string sentence_;
};

}  // namespace tpsim::launch
