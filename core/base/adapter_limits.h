// Limits of low-rank adapters that are loaded. Part of the public interface.
#pragma once

namespace rullama {

// Factors of adapters are from -kMaxAdapterScale to this; those beyond are slips of the keyboard.
inline constexpr int kMaxAdapterScale = 1'000;
// The most adapters of a request whose factor is not 0.
inline constexpr int kMaxAdaptersInForce = 64;

}  // namespace rullama
