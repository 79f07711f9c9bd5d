/** The two lists at the side and the item in the status bar. */

import * as vscode from "vscode";
import type { Approvals, Waiting } from "./approvals";
import type { Connection } from "./connection";
import { fileUri, type LandedLines, type Plan } from "./landed";
import type { ChangedFile, LandedFile } from "./wire";
import { counted } from "./words";

export interface WaitingFile {
  readonly item: Waiting;
  readonly file: ChangedFile;
}

export class WaitingView implements vscode.TreeDataProvider<Waiting | WaitingFile> {
  private readonly changes = new vscode.EventEmitter<void>();
  readonly onDidChangeTreeData = this.changes.event;

  constructor(private readonly approvals: Approvals) {
    approvals.onDidChange(() => this.changes.fire());
  }

  getChildren(parent?: Waiting | WaitingFile): (Waiting | WaitingFile)[] {
    if (parent === undefined) {
      return this.approvals.all();
    }
    return "payload" in parent ? parent.payload.files.map((file) => ({ item: parent, file })) : [];
  }

  getTreeItem(one: Waiting | WaitingFile): vscode.TreeItem {
    return "payload" in one ? this.itemOf(one) : fileOf(one);
  }

  private itemOf(item: Waiting): vscode.TreeItem {
    const { id, files } = item.payload;
    const { None, Collapsed } = vscode.TreeItemCollapsibleState;
    const shown = new vscode.TreeItem(item.headline, files.length > 1 ? Collapsed : None);
    shown.id = id;
    shown.contextValue = files.some((file) => file.hunks.length > 0) ? "approval.hunks" : "approval";
    shown.iconPath = new vscode.ThemeIcon("bell-dot", new vscode.ThemeColor("list.warningForeground"));
    shown.tooltip = [item.headline, ...item.details, item.connection.root].join("\n");
    shown.accessibilityInformation = { label: [item.headline, ...item.details].join(", ") };
    shown.command = { command: "devtools.showDiff", title: "Show Diff", arguments: [{ id }] };
    return shown;
  }
}

/** One file of a change of several, which can be looked at by itself. */
function fileOf({ item, file }: WaitingFile): vscode.TreeItem {
  const shown = new vscode.TreeItem(vscode.Uri.joinPath(vscode.Uri.file(item.connection.root), file.path));
  shown.id = `${item.payload.id}/${file.path}`;
  shown.description = `${file.from === undefined ? file.kind : `moved from ${file.from}`} ${parentOf(file.path)}`.trim();
  shown.contextValue = "approvalFile";
  shown.command = { command: "devtools.showFileDiff", title: "Show Diff", arguments: [{ item, file }] };
  return shown;
}

function parentOf(path: string): string {
  return path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : "";
}

export interface PlanFile {
  readonly plan: Plan;
  readonly file: LandedFile;
}

export class PlansView implements vscode.TreeDataProvider<Plan | PlanFile> {
  private readonly changes = new vscode.EventEmitter<void>();
  readonly onDidChangeTreeData = this.changes.event;

  constructor(private readonly landed: LandedLines) {
    landed.onDidChange(() => this.changes.fire());
  }

  getChildren(parent?: Plan | PlanFile): (Plan | PlanFile)[] {
    if (parent === undefined) {
      return [...this.landed.plans()];
    }
    return "files" in parent ? [...parent.files.values()].map((file) => ({ plan: parent, file })) : [];
  }

  getTreeItem(item: Plan | PlanFile): vscode.TreeItem {
    if ("files" in item) {
      const shown = new vscode.TreeItem(item.agent, vscode.TreeItemCollapsibleState.Expanded);
      shown.id = `${item.connection.root}:${item.id}`;
      shown.description = `${counted(item.files.size, "file")}, ${item.at.toLocaleTimeString()}`;
      shown.tooltip = `Plan ${item.id} in ${item.connection.root}`;
      shown.contextValue = "plan";
      shown.iconPath = new vscode.ThemeIcon("history");
      return shown;
    }
    const uri = fileUri(item.plan.connection, item.file);
    const shown = new vscode.TreeItem(uri);
    shown.description = item.file.from === undefined ? (item.file.kind ?? "") : `renamed from ${item.file.from}`;
    shown.contextValue = "planFile";
    if (item.file.kind !== "deleted") {
      shown.command = { command: "devtools.openLanded", title: "Open", arguments: [item] };
    }
    return shown;
  }
}

export class StatusItem implements vscode.Disposable {
  private readonly item = vscode.window.createStatusBarItem("devtools.status", vscode.StatusBarAlignment.Left, 50);

  constructor(
    private readonly approvals: Approvals,
    private readonly connections: () => readonly Connection[],
  ) {
    this.item.name = "devtools-lsp";
  }

  dispose(): void {
    this.item.dispose();
  }

  update(): void {
    const connections = this.connections();
    if (connections.length === 0) {
      this.item.hide();
      return;
    }
    const waiting = this.approvals.count;
    const following = vscode.workspace.getConfiguration("devtools").get<boolean>("follow", false);
    const away = connections.find((one) => one.state !== "connected");
    const icon =
      waiting > 0 ? "$(bell-dot)" : away === undefined ? (following ? "$(eye)" : "$(shield)") : iconOf(away.state);
    this.item.text = waiting > 0 ? `${icon} ${waiting} waiting` : `${icon} devtools`;
    this.item.backgroundColor = waiting > 0 ? new vscode.ThemeColor("statusBarItem.warningBackground") : undefined;
    this.item.tooltip = connections
      .map((one) => `${one.root}: ${one.state}${one.trouble === undefined ? "" : ` (${one.trouble})`}`)
      .join("\n");
    const state = waiting > 0 ? `${counted(waiting, "step")} of agents waiting for you` : (away?.state ?? "connected");
    this.item.accessibilityInformation = { label: `devtools-lsp: ${state}`, role: "button" };
    this.item.command =
      waiting > 0 ? "devtools.choose" : away?.state === "stopped" ? "devtools.start" : "devtools.status";
    this.item.show();
  }

  /** What is shown, for tests. */
  get text(): string {
    return this.item.text;
  }
}

function iconOf(state: Connection["state"]): string {
  return state === "stopped" ? "$(debug-disconnect)" : "$(sync~spin)";
}
