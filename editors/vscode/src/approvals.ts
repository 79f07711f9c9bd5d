/** What waits for a person, over all roots, and how they answer. A mirror of what the daemons tell. */

import * as vscode from "vscode";
import type { LanguageClient } from "vscode-languageclient/node";
import type { Connection } from "./connection";
import { type Proposals, showFile } from "./proposals";
import type { ApprovalPayload, Decided, Decision, DiffDocument, DiffText, Resolution, Words } from "./wire";

export interface Waiting {
  readonly connection: Connection;
  payload: ApprovalPayload;
  headline: string;
  details: readonly string[];
}

/** What an error of the daemon says to a person. */
export function wordsOf(problem: unknown): string {
  const data = (problem as { data?: { message?: unknown } }).data;
  if (typeof data?.message === "string") {
    return data.message;
  }
  return problem instanceof Error ? problem.message : String(problem);
}

const MAX_NOTIFICATIONS = 3;

export class Approvals implements vscode.Disposable {
  private readonly waiting = new Map<string, Waiting>();
  private readonly changes = new vscode.EventEmitter<void>();
  private asking = 0;
  private readonly undoing = new Set<Connection>();
  readonly onDidChange = this.changes.event;

  constructor(private readonly proposals: Proposals) {}

  dispose(): void {
    this.changes.dispose();
  }

  /** Everything that waits, oldest first. */
  all(): Waiting[] {
    return [...this.waiting.values()];
  }

  find(id: string): Waiting | undefined {
    return this.waiting.get(id);
  }

  /** Hear of approvals over a client that is about to start. */
  listen(connection: Connection, client: LanguageClient): void {
    client.onNotification("devtools/approvalRequested", (payload: ApprovalPayload) => this.take(connection, payload));
    client.onNotification("devtools/approvalUpdated", (payload: ApprovalPayload) => this.take(connection, payload));
    client.onNotification("devtools/approvalResolved", (resolution: Resolution) => this.resolved(resolution));
    client.onNotification("devtools/showDiff", ({ id }: { id: string }) => void this.show(id));
  }

  /** A connection is gone; what waits is told again when it is back. */
  lost(connection: Connection): void {
    for (const [id, item] of this.waiting) {
      if (item.connection === connection) {
        this.waiting.delete(id);
        void this.proposals.forget(id);
      }
    }
    this.undoing.delete(connection);
    this.changes.fire();
  }

  /** Answer, and say when it came too late. What a person changed in the proposed texts goes with an approval. */
  async decide(id: string, answer: Omit<Decision, "id" | "edited">): Promise<Decided | undefined> {
    const item = this.waiting.get(id);
    if (item === undefined) {
      void vscode.window.showInformationMessage("That does not wait for a decision any more.");
      return undefined;
    }
    const edited = answer.approve ? this.proposals.edited(id) : [];
    try {
      const decision: Decision = { id, ...answer, ...(edited.length > 0 ? { edited } : {}) };
      const decided = await item.connection.request<Decided>("devtools/decide", decision);
      if (!decided.applied) {
        void vscode.window.showInformationMessage(`Too late: ${decided.status} by ${decided.by} already.`);
      }
      return decided;
    } catch (problem) {
      void vscode.window.showErrorMessage(wordsOf(problem));
      return undefined;
    }
  }

  /** Deny and say why; asked for unless it is given, as by a key binding of the person's own. */
  async denyWithNote(id: string, given?: string): Promise<void> {
    const title = this.waiting.get(id)?.headline ?? "Deny";
    const note = given ?? (await vscode.window.showInputBox({ title, prompt: "Why not? The agent is told." }));
    if (note !== undefined) {
      await this.decide(id, { approve: false, ...(note === "" ? {} : { note }) });
    }
  }

  /** Show what would be written: side by side where the texts are known, else the diff as it would be applied. */
  async show(id: string): Promise<void> {
    const item = this.waiting.get(id);
    if (item === undefined) {
      return;
    }
    try {
      const document = await item.connection.request<DiffDocument>("devtools/diff", { id });
      const whole = document.truncated !== true && document.files.every((file) => file.partial !== true);
      if (!whole || document.files.length === 0) {
        const { text } = await item.connection.request<DiffText>("devtools/diff", { id, part: "text" });
        await vscode.window.showTextDocument(this.proposals.putText(id, text), { preview: false });
        return;
      }
      this.proposals.put(document);
      // The last one that is opened has the focus: the first file.
      for (const file of [...document.files].reverse()) {
        await showFile(document, file);
      }
    } catch (problem) {
      void vscode.window.showErrorMessage(wordsOf(problem));
    }
  }

  /** The next undo that this connection is asked about is the person's own: it is shown to them at once. */
  expectUndo(connection: Connection): vscode.Disposable {
    this.undoing.add(connection);
    return new vscode.Disposable(() => this.undoing.delete(connection));
  }

  private take(connection: Connection, payload: ApprovalPayload): void {
    const known = this.waiting.get(payload.id);
    const item = known ?? { connection, payload, headline: `${payload.agent}: ${payload.step}`, details: [] };
    item.payload = payload;
    this.waiting.set(payload.id, item);
    this.changes.fire();
    void this.describe(item, known === undefined);
  }

  private async describe(item: Waiting, fresh: boolean): Promise<void> {
    const { id } = item.payload;
    try {
      const words = await item.connection.request<Words>("devtools/diff", { id, part: "words" });
      item.headline = words.headline;
      item.details = words.details;
    } catch {
      // It has ended meanwhile; the notification about that is on its way.
      return;
    }
    if (this.waiting.get(id) !== item) {
      return;
    }
    this.changes.fire();
    if (!fresh) {
      return;
    }
    if (item.payload.step === "undo" && this.undoing.delete(item.connection)) {
      await this.show(id);
    } else if (vscode.workspace.getConfiguration("devtools").get<string>("ask") === "notify") {
      await this.ask(item);
    }
  }

  /** In a notification, as long as few of them stand there; the status bar and the view count all. */
  private async ask(item: Waiting): Promise<void> {
    if (this.asking >= MAX_NOTIFICATIONS) {
      return;
    }
    this.asking += 1;
    try {
      await this.askNow(item);
    } finally {
      this.asking -= 1;
    }
  }

  private async askNow(item: Waiting): Promise<void> {
    const { id } = item.payload;
    const chosen = await vscode.window.showWarningMessage(item.headline, "Show Diff", "Approve", "Deny");
    if (chosen === "Show Diff") {
      await this.show(id);
    } else if (chosen !== undefined) {
      await this.decide(id, { approve: chosen === "Approve" });
    }
  }

  private resolved(resolution: Resolution): void {
    const item = this.waiting.get(resolution.id);
    if (item === undefined) {
      return;
    }
    this.waiting.delete(resolution.id);
    void this.proposals.forget(resolution.id);
    this.changes.fire();
    if (resolution.by !== "editor") {
      vscode.window.setStatusBarMessage(`${resolution.status} by ${resolution.by}: ${item.headline}`, 5_000);
    }
  }
}
