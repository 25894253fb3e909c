#include "common/engine/cpu/rope_angles.h"

namespace millrace::engine::cpu {
namespace {

constexpr double kLn2 = 0.6931471805599453094;

// Natural logarithm of x > 0: x = m 2^e, ln m = 2 atanh((m - 1) / (m + 1)).
double Log(double x) {
  int exponent = 0;
  for (; x > 1.5; x *= 0.5) ++exponent;
  for (; x < 0.75; x *= 2.0) --exponent;
  const double z = (x - 1.0) / (x + 1.0), square = z * z;
  double sum = 0;
  for (int k = 41; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return 2.0 * z * sum + exponent * kLn2;
}

double Exp(double x) {
  const int exponent = static_cast<int>(x / kLn2 + (x < 0 ? -0.5 : 0.5));
  const double r = x - exponent * kLn2;
  double sum = 1.0;
  for (int k = 20; k >= 1; --k) sum = 1.0 + sum * r / k;
  for (int i = exponent; i > 0; --i) sum *= 2.0;
  for (int i = exponent; i < 0; ++i) sum *= 0.5;
  return sum;
}

// Both for 0 <= x < 2^20: reduced by multiples of pi / 2 held in 33 + 33 + 53 bits, then the Taylor series.
void SinCos(double x, double* sin, double* cos) {
  constexpr double kTwoOverPi = 0.63661977236758134308;
  constexpr double kHigh = 1.57079632673412561417e+00, kMiddle = 6.07710050630396597660e-11;
  constexpr double kLow = 2.02226624879595063154e-21;
  const auto quarter = static_cast<int64_t>(x * kTwoOverPi + 0.5);
  const auto n = static_cast<double>(quarter);
  const double r = ((x - n * kHigh) - n * kMiddle) - n * kLow, square = r * r;
  double s = 0, c = 0;
  for (int k = 20; k >= 2; k -= 2) {
    s = (1.0 - s) * square / (k * (k + 1.0));
    c = (1.0 - c) * square / ((k - 1.0) * k);
  }
  const double sine = r * (1.0 - s), cosine = 1.0 - c;
  switch (quarter & 3) {
    case 0:
      *sin = sine, *cos = cosine;
      break;
    case 1:
      *sin = cosine, *cos = -sine;
      break;
    case 2:
      *sin = -sine, *cos = -cosine;
      break;
    default:
      *sin = -cosine, *cos = sine;
      break;
  }
}

}  // namespace

std::vector<double> RopeFrequencies(double base, uint32_t dims, double scale, std::span<const float> factors) {
  std::vector<double> frequencies(dims / 2);
  const double log_base = Log(base);
  for (uint32_t i = 0; i < dims / 2; ++i) {
    frequencies[i] = Exp(-2.0 * i / dims * log_base) / scale;
    if (i < factors.size()) frequencies[i] /= static_cast<double>(factors[i]);
  }
  return frequencies;
}

void RopeAngles(std::span<const double> frequencies, uint32_t position, float* cos, float* sin) {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double s = 0, c = 0;
    SinCos(position * frequencies[i], &s, &c);
    cos[i] = static_cast<float>(c);
    sin[i] = static_cast<float>(s);
  }
}

}  // namespace millrace::engine::cpu
