#include "launch/logging.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace tpsim::launch {

void set_up_logging(const std::string& level, bool speaks) {
  const auto logger =
      std::make_shared<spdlog::logger>("tpsim", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("tpsim: %l: %v");
  logger->set_level(speaks ? spdlog::level::from_str(level) : spdlog::level::off);
  spdlog::set_default_logger(logger);
}

}  // namespace tpsim::launch
