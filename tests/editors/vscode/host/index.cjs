// Runs inside the real extension host. The agents are `devtools-lsp call` processes, the daemon is the real one.

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const { spawn } = require("node:child_process");
const vscode = require("vscode");

const WAIT_MS = 20_000;
const root = () => vscode.workspace.workspaceFolders[0].uri.fsPath;
const file = (name) => vscode.Uri.file(path.join(root(), name));
const onDisk = (name) => fs.readFileSync(path.join(root(), name), "utf8");

async function until(found, what) {
  const end = Date.now() + WAIT_MS;
  for (;;) {
    const value = await found();
    if (value) {
      return value;
    }
    assert.ok(Date.now() < end, `${what}: not within ${WAIT_MS} ms`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** An agent's call, under way: resolves to {code, out, err}. */
function call(tool, args, where = root()) {
  const child = spawn(process.env.DEVTOOLS_PROGRAM, ["call", tool, "--root", where, "--agent", "claude", "--json", "--args", JSON.stringify(args)]);
  const shown = { out: "", err: "" };
  child.stdout.on("data", (data) => (shown.out += data));
  child.stderr.on("data", (data) => (shown.err += data));
  return new Promise((resolve) => child.on("close", (code) => resolve({ code, ...shown })));
}

/** With arguments that are too long for a command line. */
function callWithInput(tool, args) {
  const child = spawn(process.env.DEVTOOLS_PROGRAM, ["call", tool, "--root", root(), "--agent", "claude", "--surface", "workspace", "--json"]);
  child.stdin.end(JSON.stringify(args));
  const shown = { out: "", err: "" };
  child.stdout.on("data", (data) => (shown.out += data));
  child.stderr.on("data", (data) => (shown.err += data));
  return new Promise((resolve) => child.on("close", (code) => resolve({ code, ...shown })));
}

const edit = (name, find, replace, where) => call("edit", { path: name, edits: [{ find, replace }] }, where);

let api;
const waiting = (count = 1) =>
  until(() => {
    const all = api.approvals.all();
    return all.length === count && all.every((item) => item.details.length > 0) && all;
  }, `${count} approvals`);
/** The approval that a call waits for; a call that ends instead fails the scene with its answer. */
const asked = (done) =>
  Promise.race([waiting().then(([item]) => item), done.then((answer) => assert.fail(JSON.stringify(answer)))]);
const marks = (uri) => vscode.languages.getDiagnostics(uri).filter((found) => found.code === "approval");
const tabs = () => vscode.window.tabGroups.all.flatMap((group) => group.tabs);
const decide = (command, argument) => vscode.commands.executeCommand(command, argument);

const tests = {
  async "attaches to the daemon that runs"() {
    const found = await vscode.extensions.getExtension("devtools-lsp.devtools-lsp").activate();
    await until(() => found.connections().every((one) => one.state === "connected"), "connected");
    api = found;
    // The workbench begins to watch the disk some time after its start; nothing that happens before is seen.
    const watcher = vscode.workspace.createFileSystemWatcher("**/probe");
    let seen = false;
    watcher.onDidChange(() => (seen = true));
    watcher.onDidCreate(() => (seen = true));
    await until(() => fs.writeFileSync(path.join(root(), "probe"), String(Date.now())) ?? seen, "the disk is watched");
    watcher.dispose();
    fs.unlinkSync(path.join(root(), "probe"));
    assert.deepStrictEqual(api.connections().map((one) => one.root), [root()]);
    const status = await api.connections()[0].request("devtools/status");
    assert.strictEqual(status.pid, Number(process.env.DAEMON_PID));
    assert.strictEqual(status.editors.length, 1);
    assert.strictEqual(api.statusText(), "$(shield) devtools");
    // What landed before this editor was there is told by the activity log.
    const [before] = await until(() => api.landed.plans().length && api.landed.plans(), "recent plans");
    assert.deepStrictEqual([before.agent, ...before.files.keys()], ["early", "early.py"]);
  },

  async "an edit is marked, approved by code action, appears, and is highlighted until it fades"() {
    const document = await vscode.workspace.openTextDocument(file("app.py"));
    await vscode.window.showTextDocument(document);
    const done = edit("app.py", "zwei", "two\nthree");
    const [mark] = await until(() => marks(document.uri).length && marks(document.uri), "the mark");
    assert.strictEqual(mark.severity, vscode.DiagnosticSeverity.Information);
    assert.strictEqual(mark.source, "devtools-lsp");
    assert.match(mark.message, /^claude wants to edit app\.py \(\+2 -1\)/);
    await until(() => api.statusText() === "$(bell-dot) 1 waiting", "the status bar");
    const actions = await vscode.commands.executeCommand("vscode.executeCodeActionProvider", document.uri, mark.range, "quickfix");
    const titles = actions.map((action) => action.title);
    assert.deepStrictEqual(titles.map((title) => title.split(":")[0]), ["Approve", "Deny", "Remember and approve", "Show diff"]);
    await decide(actions[0].command.command, ...actions[0].command.arguments);
    assert.strictEqual((await done).code, 0);
    assert.strictEqual(onDisk("app.py"), "eins 🙂\ntwo\nthree\ndrei\n");
    await until(() => document.getText() === onDisk("app.py"), "the document shows it");
    assert.strictEqual(document.isDirty, false);
    await until(() => marks(document.uri).length === 0, "the mark goes");
    const lines = () => api.landed.rangesIn(document.uri);
    const shown = await until(lines, "highlights");
    assert.deepStrictEqual(shown.ranges.map((range) => [range.start.line, range.end.line]), [[1, 2]]);
    await until(() => lines()?.fading, "fading");
    await until(() => lines() === undefined, "plain again");
    assert.deepStrictEqual([...api.landed.plans()[0].files.keys()], ["app.py"]);
  },

  async "columns after characters of two units are right"() {
    const found = await call("lint", { paths: ["wide.py"] });
    assert.strictEqual(found.code, 0, found.err);
    const uri = file("wide.py");
    const [finding] = await until(() => vscode.languages.getDiagnostics(uri).length && vscode.languages.getDiagnostics(uri), "findings");
    assert.strictEqual(finding.source, "ruff");
    assert.strictEqual(finding.range.start.character, "x = '🙂'; import ".length);
  },

  async "the diff is native, its right side may be changed, and what is seen is what is written"() {
    const done = edit("other.py", "x = 1", "x = 2");
    const item = await asked(done);
    await decide("devtools.showDiff", { id: item.payload.id });
    const tab = await until(() => tabs().find((one) => one.input instanceof vscode.TabInputTextDiff), "the diff");
    assert.match(tab.label, /^other\.py: claude wants to edit other\.py \(\+1 -1\)$/);
    const proposed = await vscode.workspace.openTextDocument(tab.input.modified);
    assert.strictEqual(proposed.getText(), "x = 2\ny = 1\n");
    const change = new vscode.WorkspaceEdit();
    change.replace(proposed.uri, new vscode.Range(0, 0, 0, 5), "x = 3");
    assert.ok(await vscode.workspace.applyEdit(change));
    await decide("devtools.approve", tab.input.modified);
    const { code, out } = await done;
    assert.strictEqual(code, 0);
    assert.ok(JSON.parse(out).decision.edited, out);
    assert.strictEqual(onDisk("other.py"), "x = 3\ny = 1\n");
    await until(() => !tabs().some((one) => one.input instanceof vscode.TabInputTextDiff), "the diff closes");
  },

  async "hunks are left out one by one, what is left is shown, and the agent is told"() {
    const before = onDisk("long.py");
    const edits = ["2", "20", "38"].map((line) => ({ find: `line ${line}\n`, replace: `row ${line}\n` }));
    const done = call("edit", { path: "long.py", edits });
    const item = await asked(done);
    const { id } = item.payload;
    const [first, second, third] = item.payload.files[0].hunks.map((hunk) => hunk.id);
    await decide("devtools.showDiff", { id });
    const tab = await until(() => tabs().find((one) => one.input instanceof vscode.TabInputTextDiff), "the diff");
    const proposed = await vscode.workspace.openTextDocument(tab.input.modified);
    const shows = (text) => until(() => proposed.getText() === text, "the rest is shown");
    const rowOf = (...lines) => lines.reduce((text, line) => text.replace(`line ${line}\n`, `row ${line}\n`), before);
    await shows(rowOf("2", "20", "38"));

    // By a code lens' command, by the code action at the hunk, by the cursor.
    const lenses = await vscode.commands.executeCommand("vscode.executeCodeLensProvider", proposed.uri);
    assert.deepStrictEqual(lenses.map((lens) => [lens.range.start.line, lens.command.title]), [[1, "Leave This Hunk Out"], [19, "Leave This Hunk Out"], [37, "Leave This Hunk Out"]]);
    await decide(lenses[0].command.command, ...lenses[0].command.arguments);
    await shows(rowOf("20", "38"));
    const place = new vscode.Range(19, 0, 19, 0);
    const [action] = await vscode.commands.executeCommand("vscode.executeCodeActionProvider", proposed.uri, place, "quickfix");
    assert.strictEqual(action.title, "Leave This Hunk Out (+1 -1)");
    await decide(action.command.command, ...action.command.arguments);
    await shows(rowOf("38"));
    const editor = await until(() => vscode.window.visibleTextEditors.find((one) => one.document === proposed), "its editor");
    editor.selection = new vscode.Selection(1, 0, 1, 0);
    await decide("devtools.toggleHunk");
    await shows(rowOf("2", "38"));

    // What a person typed is theirs: hunks of that text are not taken from under it, and the text is what counts.
    const change = new vscode.WorkspaceEdit();
    change.insert(proposed.uri, new vscode.Position(0, 0), "mine\n");
    assert.ok(await vscode.workspace.applyEdit(change));
    await decide("devtools.toggleHunk", { id, hunk: first });
    assert.strictEqual(proposed.getText(), `mine\n${rowOf("2", "38")}`);
    await decide("undo");
    await shows(rowOf("2", "38"));

    await decide("devtools.approve", tab.input.modified);
    const { out } = await done;
    const { decision } = JSON.parse(out);
    assert.deepStrictEqual(decision.dropped, [second]);
    assert.ok(!decision.edited.length, out);
    assert.ok(first !== third);
    assert.strictEqual(onDisk("long.py"), rowOf("2", "38"));
  },

  async "many files are shown as one diff, and each by itself from the list"() {
    const names = Array.from({ length: 12 }, (_, index) => `many/f${index}.py`);
    const patch = names.map((name) => `*** Add File: ${name}\n+x = 1\n`).join("");
    const done = call("apply_patch", { patch: `*** Begin Patch\n${patch}*** End Patch\n` });
    const item = await asked(done);
    await decide("devtools.showDiff", item);
    const shown = await until(() => tabs().find((one) => one.input instanceof vscode.TabInputText && one.input.uri.scheme === "devtools-approval"), "the diff");
    const text = (await vscode.workspace.openTextDocument(shown.input.uri)).getText();
    assert.ok(names.every((name) => text.includes(`+++ b/${name}`)), text.slice(0, 500));
    assert.strictEqual(tabs().filter((one) => one.input instanceof vscode.TabInputTextDiff).length, 0);
    const one = item.payload.files[3];
    await decide("devtools.showFileDiff", { item, file: one });
    const tab = await until(() => tabs().find((one) => one.input instanceof vscode.TabInputTextDiff), "one of them");
    assert.ok(tab.label.startsWith(`${one.path}: `), tab.label);
    await decide("devtools.toggleHunk", { id: item.payload.id, hunk: one.hunks[0].id });
    const rest = await vscode.workspace.openTextDocument(shown.input.uri);
    await until(() => rest.getText().includes("# left out: 1 of 12 hunks"), "the text says what is left out");
    await decide("devtools.approve", item);
    assert.strictEqual((await done).code, 0);
    assert.deepStrictEqual(names.filter((name) => !fs.existsSync(path.join(root(), name))), [one.path]);
    await until(() => !tabs().some((one) => one.input?.uri?.scheme === "devtools-approval"), "all of it closes");
  },

  async "a diff of five megabytes is shown, and what is missing is said"() {
    const content = Array.from({ length: 100_000 }, (_, index) => `value_${index} = "${"x".repeat(40)}${index}"\n`).join("");
    const done = callWithInput("write_file", { path: "big.py", content });
    const item = await asked(done);
    const since = Date.now();
    await decide("devtools.showDiff", item);
    const ready = Date.now() - since;
    const shown = await until(() => tabs().find((one) => one.input instanceof vscode.TabInputText && one.input.uri.scheme === "devtools-approval"), "the diff");
    const text = (await vscode.workspace.openTextDocument(shown.input.uri)).getText();
    console.log(`     5 MB: ${ready} ms to a shown document of ${(text.length / 1e6).toFixed(1)} MB`);
    assert.ok(ready < 10_000);
    assert.ok(text.includes("+value_0 ="));
    assert.ok(text.includes("+value_99999 =") || text.includes("# NOT ALL IS SHOWN"), "what is missing is said");
    await decide("devtools.deny", item);
    assert.strictEqual((await done).code, 2);
  },

  async "a denied edit leaves the disk alone and tells the agent why"() {
    const before = onDisk("other.py");
    const done = edit("other.py", "y = 1", "y = 2");
    const item = await asked(done);
    await decide("devtools.denyWithNote", { id: item.payload.id, note: "leave y alone" });
    const { code, err } = await done;
    assert.strictEqual(code, 2);
    assert.match(err, /leave y alone/);
    assert.strictEqual(onDisk("other.py"), before);
  },

  async "a file that does not exist yet is asked about, shown and written"() {
    const done = call("apply_patch", { patch: "*** Begin Patch\n*** Add File: new.py\n+x = 1\n*** End Patch\n" });
    const item = await asked(done);
    await decide("devtools.showDiff", item);
    const tab = await until(() => tabs().find((one) => one.input instanceof vscode.TabInputTextDiff), "the diff");
    assert.strictEqual((await vscode.workspace.openTextDocument(tab.input.original)).getText(), "");
    await decide("devtools.approve", item);
    assert.strictEqual((await done).code, 0);
    assert.strictEqual(onDisk("new.py"), "x = 1\n");
  },

  async "unsaved changes are not written over"() {
    const document = await vscode.workspace.openTextDocument(file("app.py"));
    const editor = await vscode.window.showTextDocument(document);
    const before = onDisk("app.py");
    await editor.edit((builder) => builder.insert(new vscode.Position(0, 0), "mine "));
    const { code, err } = await edit("app.py", "drei", "four");
    assert.strictEqual(code, 2);
    assert.strictEqual(JSON.parse(err).reason, "dirtyInEditor", err);
    assert.strictEqual(onDisk("app.py"), before);
    assert.ok(document.isDirty);
    await vscode.commands.executeCommand("workbench.action.files.revert");
  },

  async "an answer from a terminal counts, and the question goes away here"() {
    const done = edit("other.py", "y = 1", "y = 5");
    const item = await asked(done);
    await decide("devtools.showDiff", item);
    await until(() => tabs().find((one) => one.input instanceof vscode.TabInputTextDiff), "the diff");
    const terminal = spawn(process.env.DEVTOOLS_PROGRAM, ["approve", item.payload.id, "--root", root()]);
    await new Promise((resolve) => terminal.on("close", resolve));
    assert.strictEqual((await done).code, 0);
    await until(() => api.approvals.all().length === 0, "nothing waits");
    await until(() => !tabs().some((one) => one.input instanceof vscode.TabInputTextDiff), "the diff closes");
  },

  async "follow mode goes to what lands without taking the focus"() {
    await vscode.workspace.getConfiguration("devtools").update("follow", true, vscode.ConfigurationTarget.Global);
    await vscode.window.showTextDocument(file("app.py"));
    const done = edit("other.py", "y = 5", "y = 6");
    const item = await asked(done);
    await decide("devtools.approve", item);
    await done;
    await until(() => vscode.window.visibleTextEditors.some((one) => one.document.uri.fsPath === file("other.py").fsPath), "other.py is shown");
    await vscode.workspace.getConfiguration("devtools").update("follow", undefined, vscode.ConfigurationTarget.Global);
  },

  async "undo is shown at once to the person who asked for it"() {
    const plan = api.landed.plans()[0];
    const undone = decide("devtools.undo", plan);
    const [item] = await waiting();
    assert.strictEqual(item.payload.step, "undo");
    await until(() => tabs().find((one) => one.input instanceof vscode.TabInputTextDiff), "the diff");
    await decide("devtools.approve", item);
    await until(() => onDisk("other.py").includes("y = 5"), "the undo");
    void undone;
  },

  async "two plans in a file are two entries of the list, newest first"() {
    const [latest, before] = api.landed.plans();
    assert.notStrictEqual(latest.id, before.id);
    assert.ok(latest.at >= before.at);
  },

  async "after a crash it starts the daemon again"() {
    const [connection] = api.connections();
    const { pid } = await connection.request("devtools/status");
    const lost = edit("other.py", "x = 3", "x = 4");
    await waiting();
    process.kill(pid, "SIGKILL");
    await until(() => api.approvals.all().length === 0, "what was lost is shown no more");
    assert.notStrictEqual((await lost).code, 0);
    const again = await until(async () => connection.state === "connected" && (await connection.request("devtools/status").catch(() => undefined)), "again");
    assert.notStrictEqual(again.pid, pid);
    const done = edit("other.py", "x = 3", "x = 4");
    const item = await asked(done);
    await decide("devtools.approve", item);
    assert.strictEqual((await done).code, 0);
  },

  async "a daemon that was stopped stays stopped until somebody starts it"() {
    const [connection] = api.connections();
    await decide("devtools.stop");
    await until(() => connection.state === "stopped", "stopped");
    await until(() => api.statusText() === "$(debug-disconnect) devtools", "the status bar");
    await new Promise((resolve) => setTimeout(resolve, 700));
    assert.strictEqual(connection.state, "stopped");
    const started = spawn(process.env.DEVTOOLS_PROGRAM, ["call", "read_lines", "--root", root(), "--args", '{"path": "app.py", "start": 1}']);
    await new Promise((resolve) => started.on("close", resolve));
    await until(() => connection.state === "connected", "attached to the new daemon");
  },
};

exports.run = async () => {
  let passed = 0;
  let failed = 0;
  for (const [name, test] of Object.entries(tests)) {
    const since = Date.now();
    try {
      await Promise.race([test(), new Promise((_, late) => setTimeout(() => late(new Error("no end within 60 s")), 60_000))]);
      passed += 1;
      console.log(`ok   ${name} (${Date.now() - since} ms)`);
    } catch (problem) {
      failed += 1;
      console.error(`FAIL ${name}: ${problem.stack}`);
      if (api === undefined || failed > 2) {
        break;
      }
    }
  }
  console.log(`done ${passed} passed, ${failed} failed`);
  if (failed > 0) {
    throw new Error(`${failed} failed`);
  }
};
