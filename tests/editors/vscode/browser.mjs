// Drives one page of Chromium, one command a line: {"method", "args"} on stdin, {"result"} or {"error"} on stdout.
//
//   node browser.mjs DIRECTORY CHROMIUM PICTURES URL
//
// DIRECTORY is where install.sh put playwright-core, PICTURES where a failure's picture goes. Lines that the page's
// tests print come as {"log"}, the end of a test run in the extension host as {"exit"}.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import path from "node:path";

const [directory, executablePath, pictures, url] = process.argv.slice(2);
const { chromium } = createRequire(path.join(directory, "package.json"))("playwright-core");
const say = (message) => process.stdout.write(JSON.stringify(message) + "\n");

const browser = await chromium.launch({
  executablePath,
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
  ],
});
const page = await (await browser.newContext({ viewport: { width: 1280, height: 760 } })).newPage();
await page.exposeFunction("codeAutomationExit", (code) => say({ exit: code }));
await page.exposeFunction("codeAutomationLog", (_kind, words) => say({ log: words.map(String).join(" ") }));
page.setDefaultTimeout(60_000);

const methods = {
  press: (keys) => page.keyboard.press(keys),
  type: (text) => page.keyboard.type(text),
  click: (selector) => page.locator(selector).first().click(),
  // A menu takes no click in the moment in which it opens, but keys.
  choose: (selector) => page.locator(selector).first().hover().then(() => page.keyboard.press("Enter")),
  hover: (selector) => page.locator(selector).first().hover(),
  see: (selector) => page.locator(selector).first().waitFor({ state: "visible" }),
  wait: (selector, timeout) => page.locator(selector).first().waitFor({ state: "visible", timeout }),
  miss: (selector) => page.locator(selector).first().waitFor({ state: "hidden" }),
  text: (selector) => page.locator(selector).first().innerText(),
  count: (selector) => page.locator(selector).count(),
  screenshot: (file) => page.screenshot({ path: file }).then(() => null),
};

await page.goto(url);
say({ result: "open" });
for await (const line of createInterface({ input: process.stdin })) {
  const { method, args } = JSON.parse(line);
  try {
    say({ result: (await methods[method](...args)) ?? null });
  } catch (problem) {
    await page.screenshot({ path: path.join(pictures, "failed.png") }).catch(() => undefined);
    say({ error: `${problem} (failed.png in ${pictures} shows the page)` });
  }
}
await browser.close();
