// Eq. 3, 4, 11 and 12 as fedbb.imbalance has them, to the last digits that matter.
const weights = (() => {
  const sum = (values) => values.reduce((total, value) => total + value, 0);

  const effective = (count, beta, tau) => {
    const scaled = count / tau;
    if (beta === 0) return scaled > 0 ? 1 : 0;
    return -Math.expm1(scaled * Math.log(beta)) / (1 - beta);
  };

  const alphas = (positive, negative, beta, tau) => positive.map((count, place) => {
    const [one, other] = [effective(count, beta, tau), effective(negative[place], beta, tau)];
    return one + other > 0 ? other / (one + other) : 0.5;
  });

  const normalize = (pairs) => {
    const total = sum(pairs.flat());
    return total > 0 ? pairs.map((row) => row.map((value) => value / total)) : pairs;
  };

  // [plain, cases weighed, classes too], each [positives, negatives] by class.
  const shares = (positive, negative, alpha, multiclass) => {
    const times = (row, factor) => row.map((value, place) => value * factor(alpha[place]));
    if (multiclass) {
      const nothing = positive.map(() => 0);
      const weighed = normalize([times(positive, (a) => a), nothing]);
      return [normalize([positive, nothing]), weighed, weighed];
    }
    const cased = [times(positive, (a) => a), times(negative, (a) => 1 - a)];
    const classed = cased.map((row) => times(row, (a) => a));
    return [normalize([positive, negative]), normalize(cased), normalize(classed)];
  };

  const mean = (positive, negative, alpha, multiclass) => {
    const one = (place) => multiclass ? alpha[place] * positive[place]
      : alpha[place] * (alpha[place] * positive[place] + (1 - alpha[place]) * negative[place]);
    const cases = sum(positive) + (multiclass ? 0 : sum(negative));
    return cases > 0 ? sum(positive.map((_, place) => one(place))) / cases : 1;
  };

  const clients = (dispersions, samples, gamma, floor = 1e-3) => {
    const even = dispersions.map((spread, place) => samples[place] > 0 ? 1 / Math.max(spread, floor) : 0);
    const [all, size] = [sum(even), sum(samples)];
    return even.map((value, place) => gamma * value / all + (1 - gamma) * samples[place] / size);
  };

  return { effective, alphas, shares, mean, clients, sum };
})();
