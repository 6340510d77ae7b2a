#include "proto/error.h"

namespace tpsim {

UserError::UserError(const std::string& sentence) : std::runtime_error(sentence) {}
UserError::~UserError() = default;

}  // namespace tpsim
