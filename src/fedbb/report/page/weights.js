// Eq. 3, 4, 6, 8, 11 and 12 as fedbb.imbalance and fedbb.losses.pnb compute them.
const weights = (() => {
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const clip = (value, low, high) => Math.min(Math.max(value, low), high);

  const effective = (count, beta, tau) => {
    const scaled = count / tau;
    if (beta === 0) return scaled > 0 ? 1 : 0;
    return -Math.expm1(scaled * Math.log(beta)) / (1 - beta);
  };

  // The inverse effective number of each class, scaled to a mean of one.
  const classFactors = (positive, { beta, tau }) => {
    const inverse = positive
      .map((count) => effective(count, beta, tau))
      .map((one) => (one > 0 ? 1 / one : 0));
    const total = sum(inverse);
    return total > 0 ? inverse.map((value) => value * (inverse.length / total)) : inverse;
  };

  const alphas = (positive, negative, { beta, tau, alpha_min }) =>
    positive.map((count, at) => {
      const [one, other] = [effective(count, beta, tau), effective(negative[at], beta, tau)];
      return clip(one + other > 0 ? other / (one + other) : 0.5, alpha_min, 1 - alpha_min);
    });

  // The PNB loss of one client. pnb: {beta, tau, mu, class_factor, alpha_min}, mu a number or "unit".
  // Returns α⁺, the factors on positive and negative cases by class, and their mean over the cases.
  const weigh = (pnb, positive, negative, multiclass) => {
    const alpha = alphas(positive, negative, pnb);
    const factor = pnb.class_factor === "effective" ? classFactors(positive, pnb) : alpha;
    const onPositive = multiclass ? factor : factor.map((value, at) => value * alpha[at]);
    const onNegative = factor.map((value, at) => (multiclass ? 0 : value * (1 - alpha[at])));
    const cases = sum(positive) + (multiclass ? 0 : sum(negative));
    const total = sum(positive.map((count, at) => onPositive[at] * count + onNegative[at] * negative[at]));
    const mean = cases > 0 ? total / cases : 1;
    const mu = pnb.mu !== "unit" ? pnb.mu : mean > 0 ? 1 / mean : 1;
    const scale = (values) => values.map((value) => mu * value);
    return { alpha, positive: scale(onPositive), negative: scale(onNegative), mean: mu * mean };
  };

  const normalize = (pairs) => {
    const total = sum(pairs.flat());
    return total > 0 ? pairs.map((row) => row.map((value) => value / total)) : pairs;
  };

  // Parts of the loss [plain, cases weighted, classes too], each [positives, negatives] by class.
  // Softmax scores the true class alone, so multi-class data has no negatives and no middle step.
  const shares = (positive, negative, found, multiclass) => {
    const held = [positive, multiclass ? positive.map(() => 0) : negative];
    const times = (factors) =>
      normalize(held.map((row, kind) => row.map((count, at) => count * factors[kind][at])));
    const classed = times([found.positive, found.negative]);
    return [
      normalize(held),
      multiclass ? classed : times([found.alpha, found.alpha.map((value) => 1 - value)]),
      classed,
    ];
  };

  const clients = (dispersions, samples, gamma, floor = 1e-3) => {
    const even = dispersions.map((spread, at) => (samples[at] > 0 ? 1 / Math.max(spread, floor) : 0));
    const [all, size] = [sum(even), sum(samples)];
    return even.map((value, at) => (gamma * value) / all + ((1 - gamma) * samples[at]) / size);
  };

  return { effective, weigh, shares, clients, sum };
})();
