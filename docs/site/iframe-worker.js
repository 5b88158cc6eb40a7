// Browsers start no worker on a page that was opened from disk. There the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #window;
    #ready;

    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.#window = frame.contentWindow;
      this.#window.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      this.#ready = new Promise((resolve) => script.addEventListener("load", resolve));
      script.src = new URL(address, location.href).href;
      frame.contentDocument.head.append(script);
    }

    postMessage(data) {
      this.#ready.then(() => this.#window.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
