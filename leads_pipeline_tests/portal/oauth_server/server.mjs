// A certified OAuth 2.0 server with two clients, and a data endpoint that asks it whether the token is good.
// It prints its port, and stops when its standard input closes.
import http from "node:http";
import { Provider } from "oidc-provider";

// Letters that a form, a Basic header or a shell might spoil.
const client_secret = `b:%+ /&="'\\c`;
const common = { client_secret, grant_types: ["client_credentials"], redirect_uris: [], response_types: [] };
const clients = [
  { ...common, client_id: "body client", token_endpoint_auth_method: "client_secret_post" },
  {
    ...common,
    client_id: "basic:client/1 +%",
    token_endpoint_auth_method: "client_secret_basic",
    scope: "api/api_access",
  },
];

const server = http.createServer();
server.listen(0, "127.0.0.1", () => {
  const { port } = server.address();
  const provider = new Provider(`http://127.0.0.1:${port}`, {
    clients,
    scopes: ["api/api_access"],
    features: { clientCredentials: { enabled: true }, devInteractions: { enabled: false } },
    ttl: { ClientCredentials: 3600 },
    routes: { token: "/oauth2/token" },
  });
  let tokenRequests = 0;
  provider.use(async (ctx, next) => {
    const token = await provider.ClientCredentials.find((ctx.get("authorization").match(/^Bearer (\S+)$/) ?? [])[1]);
    if (ctx.path === "/leads") {
      ctx.status = token?.isValid ? 200 : 401;
      ctx.body = { client: token?.clientId, scope: token?.scope, tokenRequests };
    } else {
      tokenRequests += ctx.path === "/oauth2/token";
      await next();
    }
  });
  server.on("request", provider.callback());
  console.log(`port ${port}`);
});
process.stdin.on("end", () => process.exit(0)).resume();
