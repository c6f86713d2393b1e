// Lets the search work where a page is opened from a folder, as browsers start no worker
// there: a script in a hidden frame takes its place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      this.scope.postMessage = (data) => this.deliver(this, data);
      this.loaded = new Promise((resolve) => {
        this.scope.importScripts = (...urls) =>
          Promise.all(urls.map((each) => this.load(new URL(each, url))));
        this.load(url).then(resolve);
      });
    }

    load(url) {
      const script = this.scope.document.createElement("script");
      script.src = url;
      const loaded = new Promise((resolve) => (script.onload = resolve));
      this.scope.document.body.append(script);
      return loaded;
    }

    postMessage(data) {
      this.loaded.then(() => this.deliver(this.scope, data));
    }

    deliver(target, data) {
      setTimeout(() => target.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {}
  };
}
