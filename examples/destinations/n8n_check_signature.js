// The Code node of an n8n flow, after a Webhook node with the option Raw Body. It lets only signed messages pass.
// n8n needs NODE_FUNCTION_ALLOW_BUILTIN=crypto for it. Tried with n8n 2.40.
const crypto = require('crypto');
const { headers } = $input.first().json;
const body = (await this.helpers.getBinaryDataBuffer(0, 'data')).toString();
const key = Buffer.from('whsec_…'.replace('whsec_', ''), 'base64');
const text = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`;
const signature = 'v1,' + crypto.createHmac('sha256', key).update(text).digest('base64');
if (headers['webhook-signature'] !== signature) throw new Error('The signature is wrong.');
return [{ json: JSON.parse(body) }];
