// Lets the search work in pages that are opened as files. A browser starts no worker from a file, so the script of the
// search runs in a hidden frame instead. It gets and sends the same messages as a worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.frame = frame

      const inside = frame.contentWindow
      inside.document.open()
      inside.document.write("<!doctype html><title>search</title>")
      inside.document.close()
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))

      const script = inside.document.createElement("script")
      script.src = new URL(url, document.baseURI)
      // Messages wait until the script listens.
      this.listens = new Promise((resolve, reject) => {
        script.onload = resolve
        script.onerror = reject
      })
      inside.document.head.append(script)
    }

    async postMessage(data) {
      await this.listens
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
