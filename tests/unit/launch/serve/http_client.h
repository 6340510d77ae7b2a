// A client with one connection, that blocks: what a test says to a server and hears back.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace tpsim::launch {

struct HttpAnswer {
  unsigned status = 0;
  std::string body;
  std::string content_type;
  bool chunked = false;

  // What stands behind "data: " in each event.
  std::vector<std::string> events() const {
    std::vector<std::string> all;
    for (std::size_t at = 0; at < body.size();) {
      const std::size_t end = body.find("\n\n", at);
      if (end == std::string::npos || body.compare(at, 6, "data: ") != 0) {
        ADD_FAILURE() << "no event: " << body.substr(at);
        return all;
      }
      all.push_back(body.substr(at + 6, end - at - 6));
      at = end + 2;
    }
    return all;
  }
};

class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port) : socket_(io_) {
    socket_.connect({boost::asio::ip::address_v4::loopback(), port});
  }

  void send(const std::string& bytes) { boost::asio::write(socket_, boost::asio::buffer(bytes)); }
  void send(const std::string& method, const std::string& path, const std::string& body,
            const std::string& head = "content-type: application/json\r\n") {
    send(method + " " + path + " HTTP/1.1\r\nhost: test\r\n" + head +
         "content-length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  HttpAnswer receive() {
    namespace http = boost::beast::http;
    http::response_parser<http::string_body> parser;
    parser.body_limit(std::uint64_t{1} << 30);
    http::read(socket_, buffer_, parser);
    const bool chunked = parser.chunked();
    const auto message = parser.release();
    return {message.result_int(), message.body(), std::string(message[http::field::content_type]), chunked};
  }
  HttpAnswer ask(const std::string& method, const std::string& path, const std::string& body = "",
                 const std::string& head = "content-type: application/json\r\n") {
    send(method, path, body, head);
    return receive();
  }
  // Whatever comes next, up to `most` bytes; empty where the server closed.
  std::string receive_some(std::size_t most = 65536) {
    std::string bytes(most, '\0');
    boost::system::error_code error;
    bytes.resize(socket_.read_some(boost::asio::buffer(bytes), error));
    return bytes;
  }
  // All that comes until the server closes.
  std::string receive_rest() {
    std::string all;
    for (std::string some = receive_some(); !some.empty(); some = receive_some()) all += some;
    return all;
  }
  boost::asio::ip::tcp::socket& socket() { return socket_; }

 private:
  boost::asio::io_context io_;
  boost::asio::ip::tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
};

}  // namespace tpsim::launch
