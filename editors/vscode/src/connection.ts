/**
 * One root's connection to its daemon: attached, lost, tried again, stopped.
 *
 * A fresh language client for each attempt: one that failed to start cannot be started again. Knows nothing of what
 * is said over it.
 */

import * as fs from "node:fs";
import * as vscode from "vscode";
import {
  CloseAction,
  ErrorAction,
  ExecuteCommandRequest,
  LanguageClient,
  RevealOutputChannelOn,
  State,
  type DynamicFeature,
  type LanguageClientOptions,
  type ServerOptions,
  type StaticFeature,
} from "vscode-languageclient/node";
import type { Stopping } from "./wire";

const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 15_000;
const GIVE_UP_AFTER = 6;
/** A connection that lived this long ends the count of failures. */
const STABLE_MS = 5_000;
const LOOK_FOR_SOCKET_MS = 1_000;

export type ConnectionState = "connecting" | "connected" | "waiting" | "stopped";

/** A path as a glob pattern that matches it and nothing else. */
function escaped(path: string): string {
  return path.replaceAll(/[[\]{}?*]/g, "[$&]");
}

/** The commands of code actions are registered once, for all roots: each client doing so would be refused. */
class Client extends LanguageClient {
  override registerFeature(feature: StaticFeature | DynamicFeature<unknown>): void {
    if (!("registrationType" in feature) || feature.registrationType.method !== ExecuteCommandRequest.method) {
      super.registerFeature(feature);
    }
  }
}

export interface ConnectionParts {
  readonly root: string;
  /** The workspace folders that lie under the root. */
  readonly folders: readonly vscode.WorkspaceFolder[];
  readonly output: vscode.LogOutputChannel;
  /** A client is made: register what it should hear before it starts. */
  readonly opened: (client: LanguageClient) => void;
  /** It is connected: requests are answered. */
  readonly attached: () => void;
  /** The connection is gone, and all that was known through it. */
  readonly gone: () => void;
  readonly changed: () => void;
}

export class Connection implements vscode.Disposable {
  private client: LanguageClient | undefined;
  private current: ConnectionState = "stopped";
  private failures = 0;
  private why: string | undefined;
  private timer: NodeJS.Timeout | undefined;
  private disposed = false;

  constructor(private readonly parts: ConnectionParts) {}

  get root(): string {
    return this.parts.root;
  }

  get state(): ConnectionState {
    return this.current;
  }

  /** Why it could not be reached the last time. */
  get trouble(): string | undefined {
    return this.why;
  }

  /** The client while it is connected. */
  get attached(): LanguageClient | undefined {
    return this.current === "connected" ? this.client : undefined;
  }

  /** Attach, also where trying was given up or the daemon had been stopped. */
  start(): void {
    this.failures = 0;
    if (this.current !== "connected" && this.current !== "connecting") {
      void this.attempt();
    }
  }

  async request<Result>(method: string, params: object = {}): Promise<Result> {
    const client = this.attached;
    if (client === undefined) {
      throw new Error(`the daemon of ${this.root} is not connected`);
    }
    return client.sendRequest<Result>(method, params);
  }

  dispose(): void {
    void this.close();
  }

  /** Let go; the daemon goes on. */
  async close(): Promise<void> {
    this.disposed = true;
    clearTimeout(this.timer);
    const client = this.client;
    this.client = undefined;
    if (client !== undefined) {
      await client.dispose(2_000).catch(() => undefined);
    }
  }

  private become(state: ConnectionState): void {
    this.current = state;
    this.parts.changed();
  }

  private async attempt(): Promise<void> {
    clearTimeout(this.timer);
    this.become("connecting");
    const client = this.makeClient();
    this.client = client;
    const since = Date.now();
    let stopping: Stopping | undefined;
    const lost = (): void => {
      if (this.client === client) {
        this.client = undefined;
        this.lost(since, stopping);
        void client.dispose().catch(() => undefined);
      }
    };
    client.onNotification("devtools/stopping", (params: Stopping) => {
      stopping = params;
    });
    client.onDidChangeState((change) => {
      if (change.newState === State.Stopped && change.oldState === State.Running) {
        lost();
      }
    });
    this.parts.opened(client);
    try {
      await client.start();
    } catch (problem) {
      this.why = problem instanceof Error ? problem.message : String(problem);
      this.parts.output.warn(`${this.root}: ${this.why}`);
      lost();
      return;
    }
    if (this.client === client) {
      this.why = undefined;
      this.become("connected");
      this.parts.attached();
    }
  }

  private lost(since: number, stopping: Stopping | undefined): void {
    this.parts.gone();
    if (this.disposed) {
      return;
    }
    if (stopping !== undefined) {
      this.parts.output.info(`${this.root}: ${stopping.reason}`);
      this.become("stopped");
      this.lookFor(stopping.socket);
      return;
    }
    this.failures = Date.now() - since >= STABLE_MS ? 0 : this.failures + 1;
    if (this.failures >= GIVE_UP_AFTER) {
      this.become("stopped");
      void vscode.window.showWarningMessage(
        `The devtools-lsp daemon of ${this.root} could not be reached ${this.failures} times in a row. ` +
          "The output channel says more; “Devtools: Attach to the Daemon” tries again.",
      );
      return;
    }
    this.become("waiting");
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.failures);
    this.timer = setTimeout(() => void this.attempt(), wait);
  }

  /** A daemon that somebody stopped is not started again by us; attach when somebody else has started it. */
  private lookFor(socket: string): void {
    this.timer = setTimeout(() => {
      if (fs.existsSync(socket)) {
        this.start();
      } else {
        this.lookFor(socket);
      }
    }, LOOK_FOR_SOCKET_MS);
  }

  private makeClient(): LanguageClient {
    const program = vscode.workspace.getConfiguration("devtools").get<string>("path", "devtools-lsp");
    const server: ServerOptions = {
      command: program,
      args: ["stdio", "--root", this.root],
      options: { cwd: this.root },
    };
    const options: LanguageClientOptions = {
      documentSelector: this.parts.folders.map((folder) => ({
        scheme: "file",
        pattern: `${escaped(folder.uri.fsPath)}/**/*`,
      })),
      ...(this.parts.folders[0] === undefined ? {} : { workspaceFolder: this.parts.folders[0] }),
      initializationOptions: { devtools: { showDiff: true, approvals: true } },
      outputChannel: this.parts.output,
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      initializationFailedHandler: () => false,
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => ({ action: CloseAction.DoNotRestart, handled: true }),
      },
    };
    return new Client("devtools", "devtools-lsp", server, options);
  }
}
