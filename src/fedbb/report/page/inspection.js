// The inspection: the three levels of imbalance, and what other settings of PNB and CBR would do.
(() => {
  const { data, byId, make, table } = shell;
  const page = data();
  const multiclass = page.task === "multiclass";
  const given = { ...page.pnb, gamma: page.settings.gamma, reading: page.settings.reading };
  const state = { ...given, scope: 0 };
  const whole = (value) => value.toLocaleString("en");
  const percent = (value, digits = 2) => `${(100 * value).toFixed(digits)} %`;
  const pick = (row) => page.class_places.map((place) => row[place]);
  const paragraphs = (id, texts) => byId(id).append(...texts.map((text) => make("p", {}, text)));

  const countsOf = (scope) => (scope === 0 ? page.total : page.held[scope - 1]);
  const lossOf = (options, [positive, negative]) => {
    const found = weights.weigh(options, positive, negative, multiclass);
    return {
      ...found,
      counts: [positive, negative],
      shares: weights.shares(positive, negative, found, multiclass),
    };
  };
  const lossNow = () => lossOf(state, countsOf(state.scope));
  const clientsNow = ({ reading, gamma } = state) =>
    weights.clients(page.dispersions[reading], page.all_samples, gamma);
  const bySize = () => clientsNow({ reading: "printed", gamma: 0 });
  const shown = (values) => page.places.map((place) => values[place]);
  const classRows = page.classes.map((name) => ({ name }));
  const clientNames = page.clients.map((name) => (/^\d+$/.test(name) ? `client ${name}` : name));
  const clientRows = clientNames.map((name, place) => ({
    name,
    note: `${whole(page.samples[place])} samples`,
  }));

  const figures = [];
  const put = (id, options) => {
    const made = charts.figure(options);
    byId(id).append(made.node);
    figures.push(made);
  };

  const summarize = () => {
    byId("headline").textContent = page.headline;
    byId("notes").textContent = page.notes.join("; ");
    byId("notes").hidden = page.notes.length === 0;
    const found = page.warnings.length > 0 ? page.warnings : [["", "No warnings."]];
    byId("warnings").append(
      ...found.map(([level, text]) =>
        make("li", {}, level ? make("span", { class: "level" }, level) : null, make("span", {}, text)),
      ),
    );
    byId("reasons").append(...page.advice.reasons.map((reason) => make("li", {}, reason)));
    byId("fragment").textContent = page.advice.fragment;
    paragraphs("case-words", page.words.case);
    paragraphs("class-words", page.words.class);
    paragraphs("client-words", page.words.client);
  };

  // 1 − β runs over powers of ten, since the effective number saturates at 1 / (1 − β).
  const sliders = [
    {
      key: "beta",
      label: "β",
      low: 0,
      high: 8,
      to: (at) => 1 - 10 ** -at,
      from: (value) => -Math.log10(1 - value),
      text: (value) => `${Number(value.toPrecision(9))}, E ≤ ${whole(Math.round(1 / (1 - value)))}`,
    },
    {
      key: "tau",
      label: "τ",
      low: -1,
      high: 3,
      to: (at) => 10 ** at,
      from: (value) => Math.log10(value),
      text: (value) => `${Number(value.toPrecision(3))}`,
    },
    {
      key: "alpha_min",
      label: "α min",
      low: 0,
      high: 0.5,
      to: (at) => at,
      from: (value) => value,
      text: (value) => `${Number(value.toFixed(3))}`,
    },
    {
      key: "gamma",
      label: "γ",
      low: 0,
      high: 1,
      to: (at) => at,
      from: (value) => value,
      text: (value) => value.toFixed(2),
    },
  ];
  const factors = [...new Set([given.mu, page.advised.mu, 1, 4, "unit"])];
  const choices = [
    {
      key: "mu",
      label: "μ",
      values: factors,
      names: factors.map((mu) => (mu === "unit" ? "unit: mean weight 1" : String(mu))),
    },
    {
      key: "class_factor",
      label: "factor between classes",
      values: ["alpha", "effective"],
      names: ["α⁺ (paper)", "1 / effective number"],
    },
    {
      key: "reading",
      label: "dispersion R of CBR",
      values: Object.keys(page.dispersions),
      names: Object.keys(page.dispersions),
    },
  ];
  const show = () => {
    const {
      alpha,
      counts: [positive],
      shares,
      mean,
    } = lossNow();
    const held = alpha.filter((_, place) => positive[place] > 0);
    const cbr = clientsNow();
    const range =
      held.length > 0
        ? `α⁺ from ${Math.min(...held).toFixed(4)} to ${Math.max(...held).toFixed(4)}`
        : "no positive case";
    const parts = shares[2][0].map((one, place) => one + shares[2][1][place]);
    byId("outcome").textContent =
      `PNB: ${range}; mean weight of a case ${mean.toFixed(4)} with μ; the largest class has ${percent(Math.max(...parts), 1)} of the loss. ` +
      `CBR: the weights are equivalent to ${(1 / weights.sum(cbr.map((value) => value * value))).toFixed(2)} equal clients; the largest weight is ${percent(Math.max(...cbr), 1)}.`;
    figures.forEach((figure) => figure.paint());
  };
  const control = () => {
    const place = byId("controls");
    const settle = [];
    for (const { key, label, low, high, to, from, text } of sliders) {
      const output = make("output", {}, "");
      const input = make("input", {
        type: "range",
        min: low,
        max: high,
        step: (high - low) / 800,
        id: `slide-${key}`,
      });
      const tell = () => {
        output.textContent = text(state[key]);
        input.setAttribute("aria-valuetext", output.textContent);
      };
      input.addEventListener("input", () => {
        state[key] = to(Number(input.value));
        tell();
        show();
      });
      settle.push(() => {
        input.value = from(state[key]);
        tell();
      });
      place.append(make("label", {}, make("span", {}, `${label} = `, output), input));
    }
    for (const { key, label, values, names } of choices) {
      const node = charts.choice(label, names, (at) => {
        state[key] = values[at];
        show();
      });
      const select = node.querySelector("select");
      select.id = `choose-${key}`;
      settle.push(() => {
        select.selectedIndex = values.indexOf(state[key]);
      });
      place.append(node);
    }
    if (page.held !== null && page.clients.length > 1)
      place.append(
        charts.choice("cases of", ["all clients", ...clientNames], (at) => {
          state.scope = at;
          show();
        }),
      );
    const take = (values) => () => {
      Object.assign(state, values);
      settle.forEach((set) => set());
      show();
    };
    place.append(
      make(
        "div",
        { class: "buttons" },
        make("button", { type: "button", id: "as-given", onclick: take(given) }, "Settings as given"),
        make(
          "button",
          { type: "button", id: "as-advised", onclick: take(page.advised) },
          "Settings as advised",
        ),
      ),
    );
    take(given)();
  };

  const drawWhatIf = () => {
    put("what-if-figures", {
      title: "Weight of a positive case by class",
      caption:
        "Dot: α⁺ of PNB; 0.5 means no re-weighting. Ring: 1 − prevalence, the limit without smoothing.",
      plot: (width) => {
        const {
          counts: [positive, negative],
          alpha,
        } = lossNow();
        const linear = positive.map((count, place) =>
          count + negative[place] > 0 ? negative[place] / (count + negative[place]) : 0.5,
        );
        return charts.dots(
          width,
          classRows,
          [
            { name: "1 − prevalence", index: 7, values: pick(linear) },
            { name: "α⁺", index: 1, values: pick(alpha) },
          ],
          { label: "α⁺ by class", across: "α⁺", joined: true, digits: 4 },
        );
      },
    });
    put("what-if-figures", {
      title: "Aggregation weight by client",
      caption: "Ring: by number of samples (FedAvg). Dot: by CBR.",
      plot: (width) =>
        charts.dots(
          width,
          clientRows,
          [
            { name: "FedAvg, %", index: 7, values: shown(bySize()).map((value) => 100 * value) },
            { name: "CBR, %", index: 2, values: shown(clientsNow()).map((value) => 100 * value) },
          ],
          { label: "weight by client", across: "weight, %", joined: true, zero: true, digits: 2 },
        ),
    });
    if (page.held !== null && page.clients.length > 1)
      put("what-if-figures", {
        title: "Mean PNB weight by client",
        caption:
          "Dot: factor on the loss of a client, hence on its learning rate; includes μ. Ring: 1, as in the plain loss.",
        plot: (width) =>
          charts.dots(
            width,
            clientRows,
            [
              { name: "plain", index: 7, values: page.held.map(() => 1) },
              {
                name: "PNB",
                index: 3,
                values: page.held.map((counts, at) =>
                  page.without_loss[at] ? 0 : lossOf(state, counts).mean,
                ),
              },
            ],
            {
              label: "mean PNB weight by client",
              across: "mean weight",
              joined: true,
              zero: true,
              digits: 3,
            },
          ),
      });
  };

  const drawPanels = () => {
    const titles = multiclass
      ? ["Plain cross-entropy", "With PNB (Eq. 8)"]
      : ["Plain BCE", "Cases weighted by α", "With PNB (Eq. 6)"];
    titles.forEach((title, at) =>
      put("panels", {
        title,
        caption: multiclass
          ? "Share of each class in the loss if every sample has the same loss."
          : "Orange: positive cases; blue: negative cases; if every case has the same loss.",
        plot: (width) => {
          const kept = lossNow().shares.map((pair) => pair.map(pick));
          const most = Math.max(
            1e-12,
            ...kept.flatMap((pair) => pair[0].map((one, place) => one + pair[1][place])),
          );
          const [positive, negative] = kept[multiclass && at === 1 ? 2 : at];
          const series = [
            { name: "positive cases", index: 1, values: positive },
            { name: "negative cases", index: 0, values: negative },
          ];
          return charts.bars(width, classRows, multiclass ? series.slice(0, 1) : series, {
            label: title,
            across: "share of the loss",
            most,
            form: (value) => percent(value, 1),
          });
        },
      }),
    );
  };

  const tabulate = () => {
    const {
      counts: [positive, negative],
      alpha,
      shares,
    } = lossOf(given, page.total);
    const both = (pair, place) => pair[0][place] + pair[1][place];
    const rows = page.class_places.map((place, at) => [
      page.classes[at],
      [whole(positive[place]), positive[place]],
      [whole(negative[place]), negative[place]],
      [alpha[place].toFixed(4), alpha[place]],
      [percent(both(shares[0], place)), both(shares[0], place)],
      [percent(both(shares[2], place)), both(shares[2], place)],
      [whole(page.holders[at]), page.holders[at]],
    ]);
    const head = [
      "class",
      "positives",
      "negatives",
      "α⁺",
      "share of plain loss",
      "share with PNB",
      "clients with the class",
    ];
    byId("class-table").append(
      table({ caption: `Classes, with the settings as given${more(page.left_out[0])}`, head, rows }).node,
    );
    const [fedavg, cbr] = [bySize(), clientsNow(given)];
    const lines = page.places.map((place, at) => [
      page.clients[at],
      [whole(page.samples[at]), page.samples[at]],
      [page.distance[at].toFixed(4), page.distance[at]],
      [page.noise[at].toFixed(4), page.noise[at]],
      [String(page.absent[at]), page.absent[at]],
      [page.loss_weight[at].toFixed(4), page.loss_weight[at]],
      [page.dispersions[given.reading][place].toFixed(4), page.dispersions[given.reading][place]],
      [percent(fedavg[place]), fedavg[place]],
      [percent(cbr[place]), cbr[place]],
    ]);
    byId("client-table").append(
      table({
        caption: `Clients, with the settings as given${more(page.left_out[1])}`,
        head: [
          "client",
          "samples",
          "distance",
          "distance if random",
          "absent classes",
          "mean PNB weight",
          "R",
          "FedAvg",
          "CBR",
        ],
        rows: lines,
      }).node,
    );
    if (page.sets !== null)
      byId("set-table").append(
        table({
          caption: "The most frequent label sets",
          head: ["classes", "samples"],
          rows: page.sets.largest.map((set) => [
            set.classes.join(", ") || "none",
            [whole(set.samples), set.samples],
          ]),
        }).node,
      );
  };
  const more = (number) => (number > 0 ? `; ${whole(number)} of middle size are not shown` : "");

  const drawMaps = () => {
    if (page.map !== null)
      put("client-figures", {
        title: "Positive cases by client and class",
        wide: true,
        caption: "Stronger color: more cases (logarithmic scale); the faintest cells hold none.",
        plot: (width) =>
          charts.cells(width, {
            rows: clientNames,
            columns: page.classes,
            values: page.map,
            label: "positive cases of clients and classes",
            across: "class, by frequency",
            unit: "cases",
          }),
      });
    if (page.together !== null)
      put("class-figures", {
        title: "Co-occurrence of classes",
        wide: true,
        caption: "Samples with both classes; on the diagonal, all samples of the class.",
        plot: (width) =>
          charts.cells(width, {
            rows: page.classes,
            columns: page.classes,
            values: page.together,
            label: "samples of two classes",
            across: "class, by frequency",
            unit: "samples",
          }),
      });
  };

  summarize();
  drawWhatIf();
  drawPanels();
  drawMaps();
  tabulate();
  control();
})();
