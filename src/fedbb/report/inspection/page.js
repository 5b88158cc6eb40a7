// The inspection's own parts: sliders that redraw, bars of the loss, maps and tables.
(() => {
  const { data, byId, make, draw, table, showTip, hideTip } = shell;
  const page = data();
  const multiclass = page.task === "multiclass";
  const state = { beta: page.settings.beta, tau: page.settings.tau, gamma: page.settings.gamma, reading: page.settings.reading, scope: 0 };
  const whole = (value) => value.toLocaleString("en");
  const percent = (value, digits = 2) => `${(100 * value).toFixed(digits)} %`;
  const pick = (row) => page.class_places.map((place) => row[place]);
  const paragraphs = (id, texts) => byId(id).append(...texts.map((text) => make("p", {}, text)));

  const countsOf = (scope) => scope === 0 ? page.total : page.held[scope - 1];
  const classesNow = () => {
    const [positive, negative] = countsOf(state.scope);
    const alpha = weights.alphas(positive, negative, state.beta, state.tau);
    const shares = weights.shares(positive, negative, alpha, multiclass);
    return { positive, negative, alpha, shares, mean: weights.mean(positive, negative, alpha, multiclass) };
  };
  const clientsNow = () => weights.clients(page.dispersions[state.reading], page.all_samples, state.gamma);
  const bySize = () => weights.clients(page.dispersions.printed, page.all_samples, 0);
  const drawn = (values) => page.places.map((place) => values[place]);
  const classRows = page.classes.map((name) => ({ name }));

  // One bar a class: its part of the loss from positive cases, and beside it that from negative ones.
  const bars = (width, pair, most, label) => {
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = "12px system-ui, sans-serif";
    const room = Math.min(width * 0.42, 14 + Math.max(...page.classes.map((name) => pen.measureText(name).width)));
    const pace = page.classes.length > 30 ? 13 : 20;
    const height = page.classes.length * pace + 30;
    const scale = (value) => value / most * (width - room - 58);
    const nodes = page.classes.flatMap((name, place) => {
      const [one, other] = [pair[0][place], pair[1][place]];
      const y = 4 + place * pace;
      const short = [...name].length > room / 6.5 ? [...name].slice(0, Math.floor(room / 6.5) - 1).join("") + "…" : name;
      const tell = (event) => showTip([name, `positive cases: ${percent(one)}`,
        ...(multiclass ? [] : [`negative cases: ${percent(other)}`])], event.clientX, event.clientY);
      return [draw("g", { onpointermove: tell, onpointerleave: hideTip },
        draw("text", { x: room - 6, y: y + pace / 2 + 4, "text-anchor": "end", class: "name" }, short),
        draw("rect", { class: "bar s1", x: room, y: y + 2, width: scale(one), height: pace - 5 }),
        draw("rect", { class: "bar s0", x: room + scale(one), y: y + 2, width: scale(other), height: pace - 5, "fill-opacity": 0.75 }),
        draw("text", { x: room + scale(one + other) + 5, y: y + pace / 2 + 4 }, percent(one + other, 1)))];
    });
    nodes.push(draw("text", { x: width - 6, y: height - 6, "text-anchor": "end" }, "part of the loss"));
    return draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, nodes);
  };

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
    const found = page.warnings.length > 0 ? page.warnings : [["", "Nothing that stands out."]];
    byId("warnings").append(...found.map(([level, text]) => make("li", {},
      make("span", { class: "level" }, level), make("span", {}, text))));
    byId("reasons").append(...page.advice.reasons.map((reason) => make("li", {}, reason)));
    byId("fragment").textContent = page.advice.fragment;
    paragraphs("case-words", page.words.case);
    paragraphs("class-words", page.words.class);
    paragraphs("client-words", page.words.client);
  };

  // 1 − β runs over powers of ten, since that is what the effective number saturates at.
  const sliders = [
    { key: "beta", label: "β", low: 0, high: 8, to: (at) => 1 - 10 ** -at, from: (value) => -Math.log10(1 - value),
      text: (value) => `${Number(value.toPrecision(9))}, E ≤ ${whole(Math.round(1 / (1 - value)))}` },
    { key: "tau", label: "τ", low: -1, high: 3, to: (at) => 10 ** at, from: (value) => Math.log10(value), text: (value) => `${Number(value.toPrecision(3))}` },
    { key: "gamma", label: "γ", low: 0, high: 1, to: (at) => at, from: (value) => value, text: (value) => value.toFixed(2) },
  ];
  const show = () => {
    const { alpha, positive, shares, mean } = classesNow();
    const held = alpha.filter((_, place) => positive[place] > 0);
    const cbr = clientsNow();
    const spread = held.length > 0 ? `α⁺ from ${Math.min(...held).toFixed(4)} to ${Math.max(...held).toFixed(4)}` : "no positive case";
    const parts = shares[2][0].map((one, place) => one + shares[2][1][place]);
    byId("outcome").textContent = `${spread}; a case weighs ${mean.toFixed(4)} on average before μ; the largest class has ${percent(Math.max(...parts), 1)} of the loss; `
      + `clients count as ${(1 / weights.sum(cbr.map((value) => value * value))).toFixed(2)} equal ones, the heaviest weighs ${percent(Math.max(...cbr), 1)}.`;
    figures.forEach((figure) => figure.paint());
  };
  const control = () => {
    const place = byId("controls");
    const settle = [];
    for (const { key, label, low, high, to, from, text } of sliders) {
      const output = make("output", {}, "");
      const input = make("input", { type: "range", min: low, max: high, step: (high - low) / 800, id: `slide-${key}` });
      const set = () => {
        input.value = from(state[key]);
        output.textContent = text(state[key]);
        input.setAttribute("aria-valuetext", output.textContent);
      };
      input.addEventListener("input", () => {
        state[key] = to(Number(input.value));
        output.textContent = text(state[key]);
        input.setAttribute("aria-valuetext", output.textContent);
        show();
      });
      settle.push(set);
      place.append(make("label", {}, make("span", {}, `${label} = `, output), input));
    }
    const readings = Object.keys(page.dispersions);
    const reading = charts.choice("reading of R", readings, (at) => { state.reading = readings[at]; show(); });
    place.append(reading);
    if (page.held !== null && page.clients.length > 1)
      place.append(charts.choice("cases of", ["all clients", ...page.clients.map((name) => `client ${name}`)],
        (at) => { state.scope = at; show(); }));
    const take = (values) => () => {
      Object.assign(state, values);
      settle.forEach((set) => set());
      reading.querySelector("select").selectedIndex = readings.indexOf(state.reading);
      show();
    };
    const given = { ...state };
    delete given.scope;
    place.append(make("div", { class: "buttons" },
      make("button", { type: "button", id: "as-given", onclick: take(given) }, "As given"),
      make("button", { type: "button", id: "as-advised", onclick: take(page.advised) }, "As advised")));
    take(given)();
  };

  const drawWhatIf = () => {
    put("what-if-figures", { title: "Weight of a positive case, α⁺",
      caption: "One half: nothing is re-weighted. The ring is 1 − prevalence, where nothing is smoothed.",
      plot: (width) => {
        const { positive, negative, alpha } = classesNow();
        const linear = positive.map((count, place) => count + negative[place] > 0 ? negative[place] / (count + negative[place]) : 0.5);
        return charts.dots(width, classRows, [
          { name: "1 − prevalence", index: 7, values: pick(linear) },
          { name: "α⁺", index: 1, values: pick(alpha) },
        ], { label: "α⁺ by class", across: "α⁺", joined: true, digits: 4 });
      } });
    put("what-if-figures", { title: "Weight of a client",
      caption: "From FedAvg's weight by size (ring) to that of CBR.",
      plot: (width) => charts.dots(width, page.clients.map((name, place) => ({ name, note: `${whole(page.samples[place])} samples` })), [
        { name: "FedAvg, %", index: 7, values: drawn(bySize()).map((value) => 100 * value) },
        { name: "CBR, %", index: 2, values: drawn(clientsNow()).map((value) => 100 * value) },
      ], { label: "weight by client", across: "weight, %", joined: true, zero: true, digits: 2 }) });
  };

  const drawPanels = () => {
    const titles = multiclass ? ["Plain cross-entropy", "With PNB (Eq. 8)"] : ["Plain BCE", "Cases weighed by α", "Classes weighed too (PNB, Eq. 6)"];
    titles.forEach((title, stage) => put("panels", { title,
      caption: multiclass ? "Part of each class, if every sample's loss is the same." : "Orange: positive cases; blue: negative ones; if every case's loss is the same.",
      plot: (width) => {
        const { shares } = classesNow();
        const kept = shares.map((pair) => pair.map(pick));
        const most = Math.max(1e-12, ...kept.flatMap((pair) => pair[0].map((one, place) => one + pair[1][place])));
        return bars(width, kept[stage], most, title);
      } }));
  };

  const tabulate = () => {
    const [positive, negative] = page.total;
    const alpha = weights.alphas(positive, negative, page.settings.beta, page.settings.tau);
    const shares = weights.shares(positive, negative, alpha, multiclass);
    const both = (pair, place) => pair[0][place] + pair[1][place];
    const rows = page.class_places.map((place, at) => [page.classes[at],
      [whole(positive[place]), positive[place]], [whole(negative[place]), negative[place]],
      [alpha[place].toFixed(4), alpha[place]],
      [percent(both(shares[0], place)), both(shares[0], place)], [percent(both(shares[2], place)), both(shares[2], place)],
      [whole(page.holders[at]), page.holders[at]]]);
    const head = ["class", "positives", "negatives", "α⁺", "of the loss", "with PNB", "clients that have it"];
    byId("class-table").append(table({ caption: `Classes, with the settings as given${more(page.left_out[0])}`, head, rows }).node);
    const cbr = weights.clients(page.dispersions[page.settings.reading], page.all_samples, page.settings.gamma);
    const lines = page.places.map((place, at) => [page.clients[at], [whole(page.samples[at]), page.samples[at]],
      [page.distance[at].toFixed(4), page.distance[at]], [page.noise[at].toFixed(4), page.noise[at]],
      [String(page.absent[at]), page.absent[at]],
      [page.dispersions[page.settings.reading][place].toFixed(4), page.dispersions[page.settings.reading][place]],
      [percent(bySize()[place]), bySize()[place]], [percent(cbr[place]), cbr[place]]]);
    byId("client-table").append(table({ caption: `Clients, with the settings as given${more(page.left_out[1])}`,
      head: ["client", "samples", "distance", "if random", "absent classes", "R", "FedAvg", "CBR"], rows: lines }).node);
    if (page.sets !== null) byId("set-table").append(table({ caption: "The most frequent sets of classes",
      head: ["classes", "samples"], rows: page.sets.largest.map((set) => [set.classes.join(", ") || "none", [whole(set.samples), set.samples]]) }).node);
  };
  const more = (number) => number > 0 ? `; ${whole(number)} of middle size are left out here` : "";

  const drawMaps = () => {
    if (page.map !== null) put("client-figures", { title: "Which client holds which classes", wide: true,
      caption: "Positive cases; the darker, the more (by the logarithm); a faint cell has none.",
      plot: (width) => charts.cells(width, { rows: page.clients, columns: page.classes, values: page.map,
        label: "positive cases of clients and classes", across: "class, by size", unit: "cases" }) });
    if (page.together !== null) put("class-figures", { title: "Which classes occur together", wide: true,
      caption: "Samples that are of both classes; on the diagonal, of the class at all.",
      plot: (width) => charts.cells(width, { rows: page.classes, columns: page.classes, values: page.together,
        label: "samples of two classes", across: "class, by size", unit: "samples" }) });
  };

  summarize();
  drawWhatIf();
  drawPanels();
  drawMaps();
  tabulate();
  control();
})();
