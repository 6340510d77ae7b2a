// A hash of bytes that tells texts and files apart; it does not keep secrets.
#pragma once

#include <cstdint>
#include <string_view>

namespace tpsim {

// Of 64 bits; different seeds give hashes that have nothing to do with each other.
std::uint64_t hash_of_bytes(std::string_view bytes, std::uint64_t seed = 0);
// `hash` with one more number.
std::uint64_t hash_with(std::uint64_t hash, std::uint64_t number);

}  // namespace tpsim
