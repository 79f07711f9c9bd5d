/** devtools-lsp in VS Code: puts the parts together, one connection for each root, and registers the commands. */

import * as fs from "node:fs";
import * as path from "node:path";
import * as vscode from "vscode";
import { Approvals } from "./approvals";
import { Connection } from "./connection";
import { Hunks } from "./hunks";
import { LandedLines, openFile, type Plan } from "./landed";
import { approvalOf, Proposals, SCHEME } from "./proposals";
import { PlansView, StatusItem, WaitingView, type PlanFile, type WaitingFile } from "./views";
import type { Waiting } from "./approvals";
import type { Status } from "./wire";
import { inLabel, showProblem, tell, wordsOf } from "./words";

const MARKERS = ["devtools.toml", "pyproject.toml", ".git"];
const LOG_LINES = 500;

/** What tests inside the extension host look at. */
export interface Exports {
  readonly approvals: Approvals;
  readonly hunks: Hunks;
  readonly landed: LandedLines;
  readonly connections: () => readonly Connection[];
  readonly statusText: () => string;
}

/** The root of a folder: the nearest directory up that has a marker, as the daemon looks for it. */
function rootOf(folder: vscode.WorkspaceFolder): string | undefined {
  if (folder.uri.scheme !== "file") {
    return undefined;
  }
  for (let directory = folder.uri.fsPath; ; directory = path.dirname(directory)) {
    if (MARKERS.some((marker) => fs.existsSync(path.join(directory, marker)))) {
      return directory;
    }
    if (path.dirname(directory) === directory) {
      return undefined;
    }
  }
}

class Workspace implements vscode.Disposable {
  private readonly byRoot = new Map<string, Connection>();

  constructor(
    private readonly output: vscode.LogOutputChannel,
    private readonly approvals: Approvals,
    private readonly landed: LandedLines,
    private readonly changed: () => void,
  ) {}

  connections(): readonly Connection[] {
    return [...this.byRoot.values()];
  }

  /** Have one connection for each root of the trusted workspace's folders. */
  async settle(): Promise<void> {
    const wanted = new Map<string, vscode.WorkspaceFolder[]>();
    for (const folder of vscode.workspace.isTrusted ? (vscode.workspace.workspaceFolders ?? []) : []) {
      const root = rootOf(folder);
      if (root !== undefined) {
        wanted.set(root, [...(wanted.get(root) ?? []), folder]);
      }
    }
    for (const [root, connection] of [...this.byRoot]) {
      if (!wanted.has(root)) {
        this.byRoot.delete(root);
        this.approvals.lost(connection);
        await connection.close();
      }
    }
    for (const [root, folders] of wanted) {
      if (!this.byRoot.has(root)) {
        this.byRoot.set(root, this.connect(root, folders));
      }
    }
    void vscode.commands.executeCommand("setContext", "devtools.roots", this.byRoot.size);
    this.changed();
  }

  private connect(root: string, folders: readonly vscode.WorkspaceFolder[]): Connection {
    const connection: Connection = new Connection({
      root,
      folders,
      output: this.output,
      opened: (client) => {
        this.approvals.listen(connection, client);
        this.landed.listen(connection, client);
      },
      attached: () => {
        this.landed.recall(connection).catch((problem: unknown) => this.output.warn(`${root}: ${wordsOf(problem)}`));
      },
      gone: () => this.approvals.lost(connection),
      changed: this.changed,
    });
    connection.start();
    return connection;
  }

  /** The connection that a command means: the active file's, else the only one, else the one that is chosen. */
  async pick(): Promise<Connection | undefined> {
    const all = this.connections();
    const file = vscode.window.activeTextEditor?.document.uri.fsPath;
    const own = all.find((one) => file?.startsWith(one.root + path.sep) === true);
    if (own !== undefined || all.length <= 1) {
      return own ?? all[0];
    }
    const root = await vscode.window.showQuickPick(all.map((one) => one.root), { title: "Which root?" });
    return all.find((one) => one.root === root);
  }

  async close(): Promise<void> {
    await Promise.all(this.connections().map((one) => one.close()));
  }

  dispose(): void {
    void this.close();
  }
}

let workspace: Workspace | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<Exports> {
  const output = vscode.window.createOutputChannel("devtools-lsp", { log: true });
  const proposals = new Proposals();
  const approvals = new Approvals(proposals);
  const hunks = new Hunks(approvals, proposals);
  const landed = new LandedLines();
  const status = new StatusItem(approvals, () => workspace?.connections() ?? []);
  workspace = new Workspace(output, approvals, landed, () => status.update());
  const waiting = vscode.window.createTreeView("devtools.waiting", { treeDataProvider: new WaitingView(approvals) });
  const count = (): void => {
    const all = approvals.count;
    waiting.badge = all > 0 ? { value: all, tooltip: `${all} waiting for you` } : undefined;
    void vscode.commands.executeCommand("setContext", "devtools.waiting", all);
    status.update();
  };
  context.subscriptions.push(
    output,
    approvals,
    hunks,
    landed,
    proposals,
    status,
    waiting,
    workspace,
    approvals.onDidChange(count),
    vscode.window.createTreeView("devtools.plans", { treeDataProvider: new PlansView(landed) }),
    vscode.workspace.registerFileSystemProvider(SCHEME, proposals, { isCaseSensitive: true }),
    vscode.workspace.onDidChangeWorkspaceFolders(() => void workspace?.settle()),
    vscode.workspace.onDidGrantWorkspaceTrust(() => void workspace?.settle()),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("devtools")) {
        status.update();
      }
    }),
    ...registerCommands(workspace, approvals, hunks),
  );
  await workspace.settle();
  const connections = (): readonly Connection[] => workspace?.connections() ?? [];
  return { approvals, hunks, landed, connections, statusText: () => status.text };
}

export async function deactivate(): Promise<void> {
  await workspace?.close();
  workspace = undefined;
}

/** What a command about an approval was given: a code action's argument, an item of the view, a document's URI. */
type Target = { readonly id: string; readonly note?: string } | Waiting | WaitingFile | vscode.Uri | undefined;

async function idOf(approvals: Approvals, target: Target): Promise<string | undefined> {
  if (target instanceof vscode.Uri) {
    return approvalOf(target);
  }
  if (target !== undefined) {
    return "item" in target ? target.item.payload.id : "payload" in target ? target.payload.id : target.id;
  }
  return approvalOf(vscode.window.activeTextEditor?.document.uri) ?? (await choose(approvals));
}

async function choose(approvals: Approvals): Promise<string | undefined> {
  const all = approvals.all();
  if (all.length === 0) {
    void tell("info", "Nothing waits for a decision.");
    return undefined;
  }
  const items = all.map((item) => ({
    label: inLabel(item.headline),
    detail: inLabel(item.details.join(" · ")),
    id: item.payload.id,
  }));
  return items.length === 1
    ? items[0]?.id
    : (await vscode.window.showQuickPick(items, { title: `What waits for you (${items.length})` }))?.id;
}

function registerCommands(roots: Workspace, approvals: Approvals, hunks: Hunks): vscode.Disposable[] {
  const register = (name: string, run: (target: Target) => unknown): vscode.Disposable =>
    vscode.commands.registerCommand(name, run);
  const onApproval = (name: string, run: (id: string, target: Target) => unknown): vscode.Disposable =>
    register(name, async (target) => {
      const id = await idOf(approvals, target);
      return id === undefined ? undefined : run(id, target);
    });
  const onRoot = (name: string, run: (connection: Connection) => Promise<void>): vscode.Disposable =>
    register(name, async () => {
      const connection = await roots.pick();
      if (connection === undefined) {
        void tell("info", `No folder here has ${MARKERS.join(", ")}, or it is not trusted.`);
        return;
      }
      try {
        await run(connection);
      } catch (problem) {
        showProblem(problem);
      }
    });
  return [
    onApproval("devtools.approve", (id) => approvals.decide(id, { approve: true })),
    onApproval("devtools.deny", (id) => approvals.decide(id, { approve: false })),
    onApproval("devtools.denyWithNote", (id, target) =>
      approvals.denyWithNote(id, target !== undefined && "note" in target ? target.note : undefined),
    ),
    // A code action has said in its title what would be remembered; everywhere else it is said now.
    onApproval("devtools.rememberAndApprove", (id, target) =>
      approvals.remember(id, target === undefined || target instanceof vscode.Uri || !("id" in target)),
    ),
    onApproval("devtools.chooseHunks", (id) => hunks.choose(id)),
    vscode.commands.registerCommand("devtools.toggleHunk", (given?: { id: string; hunk: string } | vscode.Uri) =>
      hunks.toggle(given instanceof vscode.Uri ? undefined : given),
    ),
    vscode.commands.registerCommand("devtools.showFileDiff", ({ item, file }: WaitingFile) =>
      approvals.showFile(item.payload.id, file.path),
    ),
    onApproval("devtools.showDiff", (id) => approvals.show(id)),
    onApproval("devtools.choose", (id) => approvals.show(id)),
    vscode.commands.registerCommand("devtools.openLanded", (item: PlanFile) =>
      openFile(item.plan.connection, item.file, false),
    ),
    vscode.commands.registerCommand("devtools.undo", async (plan?: Plan) => {
      const connection = plan?.connection ?? (await roots.pick());
      if (connection !== undefined) {
        await undo(connection, approvals, plan?.id);
      }
    }),
    register("devtools.toggleFollow", () => {
      const settings = vscode.workspace.getConfiguration("devtools");
      return settings.update("follow", !settings.get<boolean>("follow", false), vscode.ConfigurationTarget.Global);
    }),
    onRoot("devtools.status", async (connection) => {
      const status = await connection.request<Status>("devtools/status");
      await showJson(status);
    }),
    onRoot("devtools.log", showLog),
    onRoot("devtools.stop", async (connection) => {
      await connection.request("devtools/stop");
    }),
    register("devtools.start", async () => {
      await roots.settle();
      roots.connections().forEach((connection) => connection.start());
    }),
  ];
}

async function undo(connection: Connection, approvals: Approvals, plan: string | undefined): Promise<void> {
  const expected = approvals.expectUndo(connection);
  try {
    const params = plan === undefined ? {} : { plan };
    const result = await connection.request<{ summary?: string }>("devtools/undo", params);
    void tell("info", `Undone. ${result.summary ?? ""}`);
  } catch (problem) {
    void tell("error", `Not undone: ${wordsOf(problem)}`);
  } finally {
    expected.dispose();
  }
}

async function showJson(value: unknown): Promise<void> {
  const content = JSON.stringify(value, undefined, 2);
  await vscode.window.showTextDocument(await vscode.workspace.openTextDocument({ language: "json", content }));
}

async function showLog(connection: Connection): Promise<void> {
  const { stateDir } = await connection.request<Status>("devtools/status");
  const text = await fs.promises.readFile(path.join(stateDir, "activity.jsonl"), "utf8");
  const content = text.trimEnd().split("\n").slice(-LOG_LINES).join("\n");
  await vscode.window.showTextDocument(await vscode.workspace.openTextDocument({ language: "jsonl", content }));
}
